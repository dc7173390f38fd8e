package limit

import (
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// pttl is a key's remaining life in ms: -1 for ever, -2 for a key that is not there.
func (b *bench) pttl(key string) int64 {
	b.Helper()
	h := pipeline.Declare(b.backend.Batch("test"), "test", func(v any) (int64, error) { n, _ := v.(int64); return n, nil }, "PTTL", key)
	n, err := h.Get(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// A set of leases that ended with its last lease would take the only trace of what a dead process had reserved along.
func TestLeasesOutlastTheirTime(t *testing.T) {
	onBoth(t, func(b *bench) {
		const days35 = int64(35 * 24 * time.Hour / time.Millisecond)
		for _, c := range []struct {
			id   string
			per  config.Period
			kept func(ms int64) bool
		}{
			{"month", config.Month, func(ms int64) bool { return ms > days35-60_000 && ms <= days35 }},
			{"lifetime", config.Lifetime, func(ms int64) bool { return ms == -1 }},
		} {
			key := b.scope(KindKey, c.id, config.Limits{Budgets: []config.Budget{usd(100, c.per)}, Parallel: rate(1)})
			g := granted(b, b.reserve(b.costing(100), key))
			leases := b.key("l:key:" + c.id)
			if ms := b.pttl(leases); !c.kept(ms) {
				b.Errorf("%s: leases live for %d ms", c.id, ms)
			}
			b.limiter.Renew(b.deferred, true)
			b.flushed()
			if ms := b.pttl(leases); !c.kept(ms) {
				b.Errorf("%s: renewed leases live for %d ms", c.id, ms)
			}
			b.settle(g, Ending{Nano: 1})
			if ms := b.pttl(leases); ms != -2 {
				b.Errorf("%s: the set of leases stays after the last one for %d ms", c.id, ms)
			}
		}
	})
}

// One scope's key of the wrong type must not keep the other scopes' leases from being renewed, nor a writer's number
// keep its settlements from being applied.
func TestWrongTypesStopNoRenewalAndNoSettlement(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{Budgets: []config.Budget{usd(100, config.Day)}})
		team := b.scope(KindTeam, "t", config.Limits{Budgets: []config.Budget{usd(100, config.Day)}})
		g := granted(b, b.reserve(b.costing(10), key, team))
		set := func(name string) {
			h := pipeline.Declare(b.backend.Batch("test"), "test", pipeline.Raw, "EVAL",
				"redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'a', 'b') return 1", 1, name)
			if _, err := h.Get(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		set(b.key("l:key:k"))
		b.ms += 20_000
		b.limiter.Renew(b.deferred, true)
		b.flushed()
		b.ms += 20_000
		other := granted(b, b.reserve(b.costing(10), team))
		b.want(b.key("b:team:t"), map[string]string{"uday.r": "20"}) // the first one's lease still runs
		b.settle(other, Ending{Nano: 10})
		set(writerKey("tg", b.home(KindTeam), b.deferred.Writer()))
		b.settle(g, Ending{Nano: 10})
		b.want(b.key("b:team:t"), map[string]string{"uday.s": "20", "uday.r": "0"})
	})
}
