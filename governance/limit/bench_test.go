package limit

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/usage"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// What one admission and one settlement cost Redis itself, by its own count (redis-us/admit, redis-us/settle), over n
// scopes that each have a budget, rpm, tpm and parallel.
func BenchmarkScripts(b *testing.B) {
	for _, n := range []int{1, 2, 5, 8} {
		b.Run(fmt.Sprintf("scopes=%d", n), func(b *testing.B) {
			server := redistest.Start(b)
			backend, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 5 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = backend.Close() })
			l := New(Options{Prefix: "tg", StreamMax: 1000})
			if err := l.Load(b.Context(), backend); err != nil {
				b.Fatal(err)
			}
			var scopes []*Scope
			for i := range n {
				scopes = append(scopes, scope(KindKey, fmt.Sprint("k", i), config.Limits{
					Budgets: []config.Budget{usd(1<<52, config.Month)}, RPM: rate(1 << 40), TPM: rate(1 << 40), Parallel: rate(1 << 30),
				}))
			}
			d := pipeline.NewDeferred(backend, pipeline.DeferredOptions{})
			admitUS, settleUS := 0.0, 0.0
			calls := 0
			for b.Loop() {
				server.Client().ConfigResetStat(b.Context())
				batch := backend.Batch("bench")
				var list [50]*Admission // in one pipeline, so that Redis is busy with nothing else
				for i := range list {
					calls++
					list[i] = l.Reserve(batch, Ask{Demand: Demand{ID: strconv.Itoa(calls), Fixed: 1000, Want: 10, Least: 10, Choices: 1}, Scopes: scopes})
				}
				w := d.Writes()
				for _, a := range list {
					v, err := a.Get(b.Context(), d)
					if err != nil || v.Grant == nil {
						b.Fatal(v, err)
					}
					v.Grant.Settle(w, Ending{Nano: 500, Usage: usage.Usage{Input: 5, Output: 5}})
				}
				admitUS += redisMicros(b, server)
				server.Client().ConfigResetStat(b.Context())
				w.Close()
				for d.Pending() > 0 {
					time.Sleep(50 * time.Microsecond)
				}
				settleUS += redisMicros(b, server)
			}
			rounds := float64(calls / 50)
			b.ReportMetric(admitUS/rounds, "redis-us/admit")
			b.ReportMetric(settleUS/rounds, "redis-us/settle")
			d.Drain(b.Context())
		})
	}
}

var perCall = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=\d+,usec_per_call=([\d.]+)`)

// redisMicros is what a script call took by the server's own count since the last reset.
func redisMicros(b *testing.B, server *redistest.Server) float64 {
	m := perCall.FindStringSubmatch(server.Client().Info(b.Context(), "commandstats").Val())
	if m == nil {
		return 0
	}
	us, _ := strconv.ParseFloat(m[1], 64)
	return us
}
