package governance

import (
	"strconv"
	"strings"
	"testing"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// TestE69OneCorruptKeyAtATime replaces each key of a request by one of another type, in turn; beside it stands a key that is
// not there, whose nil is the pipeline's first error. Who owns the key judges it, and nobody else; afterwards nothing is
// held, and the books are exact. The budgets, rates and leases of a key and its team have their failure policies tried out
// end to end, in cmd/tollgate.
func TestE69OneCorruptKeyAtATime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, key string // CACHED and WRITER stand for what is known only then
		cache     string // redis.on_failure.cache
		// What a question gets that has a cached answer, and one that has none; 0: it goes upstream.
		known, other int
	}{
		{"cached answer", "CACHED", "miss", 0, 0},
		{"cached answer, nothing rather than a miss", "CACHED", "deny", 503, 0},
		{"budgets", "tg:{k:file}:b:key:file", "miss", 503, 503},
		{"rates", "tg:{k:file}:r:key:file", "miss", 503, 503},
		{"leases", "tg:{k:file}:l:key:file", "miss", 503, 503},
		{"rates of the deployment", "tg:{m:m}:r:deployment:d", "miss", 503, 503},
		{"leases of the deployment", "tg:{m:m}:l:deployment:d", "miss", 503, 503},
		{"number of the last settlement", "WRITER", "miss", 200, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rig := newRowsRig(t, 1, func(cfg *config.Config) {
				cached(cfg)
				cfg.Models[0].Deployments[0].Limits = config.Limits{RPM: &config.Rate{Limit: 1000}, Parallel: &config.Rate{Limit: 10}}
				cfg.Redis.OnFailure = config.OnFailure{Budgets: "deny", Rates: "deny", Cache: tt.cache, UnknownKey: "deny"}
			}, func(o *Options) { o.Identities = false })
			r, c, ctx := rig.replicas[0], rig.server.Client(), t.Context()
			paid := int64(0)
			chat := func(text string, status int) {
				t.Helper()
				o := r.chat(text)
				if o.status != status {
					t.Errorf("%s: %d %s, want %d: %s", text, o.status, o.reason, status, o.body)
				}
				if o.status == 0 {
					paid++
				}
				r.settled()
			}
			chat("a", 0)
			name := strings.Replace(tt.key, "WRITER", "tg:{k:file}:w:"+r.gate.deferred.Writer(), 1)
			if tt.key == "CACHED" {
				name = c.Keys(ctx, "tg:c:*").Val()[0]
			}
			kept := c.Dump(ctx, name).Val() // of leases none is left
			c.Del(ctx, name)
			if err := c.RPush(ctx, name, "by hand").Err(); err != nil {
				t.Fatal(err)
			}
			chat("a", tt.known)
			chat("b", tt.other)
			if tt.known == 503 {
				if v := c.LRange(ctx, name, 0, -1).Val(); len(v) != 1 || v[0] != "by hand" {
					t.Errorf("%s = %v: somebody wrote over it", name, v)
				}
				c.Del(ctx, name)
				if kept != "" {
					c.Restore(ctx, name, 0, kept)
				}
			}
			chat("a", 200)
			chat("c", 0)
			chat("c", 200)
			got := c.HMGet(ctx, "tg:{k:file}:b:key:file", "ulifetime.s", "ulifetime.r").Val()
			if len(got) != 2 || got[0] != strconv.FormatInt(paid*answerCost, 10) || got[1] != "0" {
				t.Errorf("spent and reserved %v, want %d and 0", got, paid*answerCost)
			}
			for _, l := range []string{"tg:{k:file}:l:key:file", "tg:{m:m}:l:deployment:d"} {
				if n, err := c.ZCard(ctx, l).Result(); n != 0 || err != nil {
					t.Errorf("%s holds %d leases, %v", l, n, err)
				}
			}
		})
	}
}
