package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

func TestServerThatLoads(t *testing.T) {
	t.Parallel()
	redistest.Kinds(t, func(t *testing.T, kind redistest.Kind) {
		t.Parallel()
		server := kind.Start(t)
		set(t, server.Client(), "n", "5")
		finish := server.RestartLoading()
		c := client(t, server.Addr())
		for range 3 {
			if err := c.Incr(t.Context(), "n").Err(); !redis.HasErrorPrefix(err, "LOADING") {
				t.Errorf("INCR while the server loads: error is %v, want LOADING", err)
			}
		}
		finish()
		if got := get(t, c, "n"); got != "5" {
			t.Errorf("GET n = %q, want 5: kept, and nothing executed", got)
		}
		info, err := c.Info(t.Context(), "keyspace").Result()
		if err != nil {
			t.Fatal(err)
		}
		if want := "# Keyspace\r\ndb0:keys=1,"; len(info) < len(want) || info[:len(want)] != want {
			t.Errorf("keys are %q, want one in database 0", info)
		}
		server.Restart()
		if got := get(t, server.Client(), "n"); got != "" {
			t.Errorf("GET n = %q after an ordinary restart, want nothing", got)
		}
	})
}
