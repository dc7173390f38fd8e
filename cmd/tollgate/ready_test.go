package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// away opens the breaker of an app's Redis.
func away(t *testing.T, a *app) {
	t.Helper()
	for range 1000 {
		if !a.backend.Answering() {
			return
		}
		_, _ = pipeline.Declare(a.backend.Batch("test"), "test", pipeline.Raw, "PING").Get(t.Context())
	}
	t.Fatal("the breaker stays closed")
}

// While Redis does not answer an app is not ready, and says so without waiting; without any request it finds out when
// that is over. With redis.on_failure that lets requests pass it stays ready.
func TestReadyWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := config.Default()
	cfg.Redis.URL = server.URL()
	cfg.Redis.Deadline = 200 * time.Millisecond
	strict := newTestApp(t, cfg)
	lenient := *cfg
	lenient.Redis.OnFailure.Budgets, lenient.Redis.OnFailure.Rates = "local", "allow"
	loose := newTestApp(t, &lenient)
	node := `tollgate_redis_node_up{node="` + server.Addr() + `"} `
	if _, body := get(t, "http://"+strict.bound["health"]+"/metrics"); !strings.Contains(body, node+"1\n") {
		t.Errorf("no %s1 in\n%s", node, body)
	}
	server.Kill()
	away(t, strict)
	away(t, loose)
	if code, body := get(t, "http://"+strict.bound["health"]+"/readyz"); code != 503 || body != "redis is unavailable: it did not answer lately\n" {
		t.Errorf("away: %d %s", code, body)
	}
	if code, body := get(t, "http://"+loose.bound["health"]+"/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("away, and requests pass: %d %s", code, body)
	}
	_, body := get(t, "http://"+strict.bound["health"]+"/metrics")
	for _, want := range []string{node + "0\n", "tollgate_redis_up 0\n"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	server.Restart()
	for range 400 {
		if code, _ := get(t, "http://"+strict.bound["health"]+"/readyz"); code == 200 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("not ready again")
}

// A server that evicts keys is not ready, whatever on_failure says.
func TestNotReadyOnAServerThatEvicts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := config.Default()
	cfg.Redis.URL = server.URL()
	cfg.Redis.OnFailure.Budgets, cfg.Redis.OnFailure.Rates = "allow", "allow"
	a := newTestApp(t, cfg)
	if code, body := get(t, "http://"+a.bound["health"]+"/readyz"); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if err := server.Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, "http://"+a.bound["health"]+"/readyz"); code != 503 || body != pipeline.ErrEvicts.Error()+" (it is allkeys-lru)\n" {
		t.Errorf("%d %s", code, body)
	}
}
