package limit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/usage"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// bench is a limiter on a store with a clock of its own.
type bench struct {
	*testing.T
	backend  *pipeline.Backend
	client   *redis.Client // for a look behind the scripts; nil on the embedded store
	limiter  *Limiter
	deferred *pipeline.Deferred
	ms       int64 // Redis' clock
	lag      int64 // of this process' clock behind it
	n        int
}

// onBoth runs a test on a real Redis and on the embedded store, which runs another Lua; on each with one script for all
// and with one for each home.
func onBoth(t *testing.T, test func(b *bench)) {
	onStores(t, test, false)
	onClusters(t, test)
}

// onClusters runs a test on both stores with one script for each home.
func onClusters(t *testing.T, test func(b *bench)) { onStores(t, test, true) }

func onStores(t *testing.T, test func(b *bench), clustered bool) {
	name := ""
	if clustered {
		name = " clustered"
	}
	t.Run("embedded"+name, func(t *testing.T) {
		t.Parallel()
		backend, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		test(newBench(t, backend, clustered))
	})
	t.Run("redis"+name, func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		b := newBench(t, open(t, server.URL()), clustered)
		b.client = server.Client()
		test(b)
	})
}

func open(t testing.TB, url string) *pipeline.Backend {
	t.Helper()
	backend, err := pipeline.Open(pipeline.Options{URL: url, Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return backend
}

// start is the instant at which tests begin: the first millisecond of a minute, hour, day and month.
var start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

func newBench(t *testing.T, backend *pipeline.Backend, clustered bool) *bench {
	b := &bench{T: t, backend: backend, ms: start, deferred: pipeline.NewDeferred(backend, pipeline.DeferredOptions{})}
	t.Cleanup(func() {
		b.deferred.Drain(t.Context())
		_ = backend.Close()
	})
	b.limiter = New(Options{
		Prefix: "tg", StreamMax: 1000, Clustered: clustered,
		Now: func() time.Time { return time.UnixMilli(b.ms - b.lag) },
	})
	b.limiter.clock = func() int64 { return b.ms }
	if err := b.limiter.Load(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
	return b
}

// scope makes a scope of the home "h".
func scope(kind, id string, l config.Limits) *Scope {
	return NewScope("tg", Owner{Kind: kind, ID: id, Home: "h", Limits: l, Zone: time.UTC})
}

// home is where the scopes of a kind are: each kind at a home of its own where that makes a difference.
func (b *bench) home(kind string) string {
	if b.limiter.clustered {
		return "h-" + kind
	}
	return "h"
}

// scope makes a scope at the home of its kind.
func (b *bench) scope(kind, id string, l config.Limits) *Scope {
	return NewScope("tg", Owner{Kind: kind, ID: id, Home: b.home(kind), Limits: l, Zone: time.UTC})
}

// key is the key of a scope's counter, named as "b:key:k".
func (b *bench) key(name string) string {
	kind := strings.Split(name, ":")[1]
	return "tg:{" + b.home(kind) + "}:" + name
}

func rate(n int64) *config.Rate { return &config.Rate{Limit: n} }

// usd is a budget in nano-dollars.
func usd(nano int64, per config.Period) config.Budget {
	return config.Budget{Unit: config.USD, Amount: nano, Per: per}
}

// costing is a demand of a fixed cost and nothing else.
func (b *bench) costing(nano int64) Demand {
	b.n++
	return Demand{ID: fmt.Sprintf("req-%d", b.n), Note: "k", Fixed: nano, Want: 10, Least: 10, Choices: 1}
}

func (b *bench) reserve(d Demand, scopes ...*Scope) Verdict {
	b.Helper()
	return b.ask(Ask{Demand: d, Scopes: scopes, DenyBudgets: true, DenyRates: true})
}

func (b *bench) ask(a Ask) Verdict {
	b.Helper()
	v, err := b.limiter.Reserve(b.backend.Batch("test"), a).Get(b.Context(), b.deferred)
	if err != nil {
		b.Fatalf("admission: %v", err)
	}
	return v
}

// settle settles and waits until Redis has answered.
func (b *bench) settle(g *Grant, e Ending) {
	b.Helper()
	w := b.deferred.Writes()
	g.Settle(w, e)
	w.Close()
	b.flushed()
}

func (b *bench) flushed() {
	b.Helper()
	flushed(b, b.deferred)
}

// flushed waits until every deferred write is answered.
func flushed(t testing.TB, d *pipeline.Deferred) {
	t.Helper()
	for range 50_000 {
		if d.Pending() == 0 {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
	t.Fatal("deferred writes are not answered")
}

// field reads one field of a hash.
func (b *bench) field(key, field string) string {
	b.Helper()
	h := pipeline.Declare(b.backend.Batch("test"), "test", pipeline.Bytes, "HGET", key, field)
	v, err := h.Get(b.Context())
	if err != nil {
		return ""
	}
	return string(v)
}

// want compares fields of a hash.
func (b *bench) want(key string, fields map[string]string) {
	b.Helper()
	for f, v := range fields {
		if got := b.field(key, f); got != v {
			b.Errorf("%s %s = %q, want %q", key, f, got, v)
		}
	}
}

func granted(t testing.TB, v Verdict) *Grant {
	t.Helper()
	if v.Grant == nil {
		t.Fatalf("refused: %+v", v.Failures)
	}
	return v.Grant
}

func refusedBy(t testing.TB, v Verdict, kind FailureKind, s *Scope) Failure {
	t.Helper()
	if v.Grant != nil {
		t.Fatalf("granted, want a refusal by %s", kind)
	}
	f := v.Failures[0]
	if f.Kind != kind || f.Scope != s {
		t.Fatalf("refused by %s of %s %s, want %s of %s %s", f.Kind, f.Scope.Kind, f.Scope.ID, kind, s.Kind, s.ID)
	}
	return f
}

func TestBudgetHoldsExactlyItsAmount(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{Budgets: []config.Budget{usd(100, config.Day), usd(250, config.Month)}})
		team := b.scope(KindTeam, "t", config.Limits{Budgets: []config.Budget{usd(1000, config.Month)}})
		var grants []*Grant
		for range 10 {
			grants = append(grants, granted(b, b.reserve(b.costing(10), key, team)))
		}
		f := refusedBy(b, b.reserve(b.costing(1), key, team), FailBudget, key)
		if f.Budget.Per != config.Day || f.Used != 0 || f.Reserved != 100 || f.Limit != 100 || f.Spent() {
			b.Errorf("failure = %+v", f)
		}
		for _, g := range grants {
			b.settle(g, Ending{Nano: 7})
		}
		b.want(b.key("b:key:k"), map[string]string{"uday.s": "70", "uday.r": "0", "umonth.s": "70", "umonth.r": "0"})
		b.want(b.key("b:team:t"), map[string]string{"umonth.s": "70", "umonth.r": "0"})
		granted(b, b.reserve(b.costing(30), key, team))
		refusedBy(b, b.reserve(b.costing(1), key, team), FailBudget, key)
	})
}

func TestSettlementIsAppliedOnce(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{Budgets: []config.Budget{usd(1000, config.Lifetime)}, TPM: rate(100), Parallel: rate(1)})
		d := b.costing(100)
		d.Input = 20
		g := granted(b, b.reserve(d, key))
		refusedBy(b, b.reserve(b.costing(1), key), FailParallel, key)
		b.settle(g, Ending{Nano: 60, Usage: usage.Usage{Input: 5, Output: 2}})
		b.want(b.key("b:key:k"), map[string]string{"ulifetime.s": "60", "ulifetime.r": "0"})
		b.want(b.key("r:key:k"), map[string]string{"w": fmt.Sprintf("%d:1:7", start/5000)})
		w := b.deferred.Writes()
		again := *g
		again.leased = false
		again.Settle(w, Ending{Nano: 60}) // with a new number it charges once more, but holds no lease to give back
		w.Close()
		b.flushed()
		b.want(b.key("b:key:k"), map[string]string{"ulifetime.s": "120", "ulifetime.r": "0"})
	})
}

func TestPeriodsTurnOver(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{Budgets: []config.Budget{usd(100, config.Minute)}})
		late := granted(b, b.reserve(b.costing(60), key))
		b.ms += 61_000
		next := granted(b, b.reserve(b.costing(100), key))
		b.settle(late, Ending{Nano: 50}) // lands in the period it was reserved in
		b.want(b.key("b:key:k"), map[string]string{
			"uminute.S": "50", "uminute.R": "0", "uminute.s": "0", "uminute.r": "100",
		})
		b.settle(next, Ending{Nano: 100})
		f := refusedBy(b, b.reserve(b.costing(1), key), FailBudget, key)
		if !f.Spent() || f.ResetsAt.UnixMilli() != start+120_000 {
			b.Errorf("failure = %+v", f)
		}
		if _, ok := b.limiter.Remembered([]*Scope{key}, false); !ok {
			b.Error("a spent budget is not remembered")
		}
		if _, ok := b.limiter.Remembered([]*Scope{key}, true); ok {
			b.Error("a free request is refused from memory")
		}
		b.ms = start + 120_000
		if f, ok := b.limiter.Remembered([]*Scope{key}, false); ok {
			b.Errorf("still remembered in the next period: %+v", f)
		}
		granted(b, b.reserve(b.costing(100), key))
	})
}

func TestWindowOpensAgain(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{RPM: rate(3)})
		b.ms = start + 3_000
		for i := range 3 {
			g := granted(b, b.reserve(b.costing(1), key))
			if got := g.Uses[0].Requests; got != int64(i+1) {
				b.Errorf("used %d, want %d", got, i+1)
			}
		}
		f := refusedBy(b, b.reserve(b.costing(1), key), FailRPM, key)
		if f.Wait <= 0 || f.Wait > 65*time.Second {
			b.Fatalf("wait = %s", f.Wait)
		}
		b.ms += f.Wait.Milliseconds() - 20
		refusedBy(b, b.reserve(b.costing(1), key), FailRPM, key)
		b.ms += 20
		granted(b, b.reserve(b.costing(1), key))
	})
}

func TestLeasesRunOut(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{Budgets: []config.Budget{usd(100, config.Day)}, Parallel: rate(1)})
		frozen := granted(b, b.reserve(b.costing(100), key))
		b.ms += 20_000
		b.limiter.Renew(b.deferred, false)
		b.flushed()
		b.ms += 20_000
		refusedBy(b, b.reserve(b.costing(1), key), FailBudget, key)
		b.ms += 11_000
		v := b.reserve(b.costing(90), key)
		granted(b, v)
		if len(v.Lost) != 1 || v.Lost[0].ID != frozen.ID || v.Lost[0].Note != "k" || v.Lost[0].Nano != 100 {
			b.Errorf("lost = %+v", v.Lost)
		}
		b.want(b.key("b:key:k"), map[string]string{"uday.s": "0", "uday.r": "90"})
		b.settle(frozen, Ending{Nano: 40}) // late, and still charged
		b.want(b.key("b:key:k"), map[string]string{"uday.s": "40", "uday.r": "90"})
	})
}

func TestTokensAreClamped(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{Budgets: []config.Budget{usd(500_000, config.Day)}, TPM: rate(800)})
		d := Demand{ID: "a", Input: 100, PerMNano: 1_000_000_000, Want: 1024, Least: 256, Choices: 1}
		g := granted(b, b.reserve(d, key)) // 1000 nano-dollars a token: the budget holds 500, tpm 700
		if g.Output != 500 || g.Reserved != 500_000 {
			b.Errorf("output %d, reserved %d", g.Output, g.Reserved)
		}
		d.ID = "b"
		refusedBy(b, b.reserve(d, key), FailBudget, key)
		b.settle(g, Ending{Nano: 1000, Usage: usage.Usage{Input: 100, Output: 1}})
		d.ID = "c"
		g = granted(b, b.reserve(d, key))
		if g.Output != 499 { // 499,000 left; tpm would hold 599
			b.Errorf("output %d", g.Output)
		}
		d.ID, d.Want, d.Least, d.Input = "d", 900, 900, 0
		if f := b.reserve(d, key).Failures; len(f) != 2 || f[1].Kind != FailTPM || f[1].Wait >= 0 {
			b.Errorf("failures = %+v", f) // larger than the limit: it will never fit
		}
	})
}

func TestDeploymentIsChosenBySmallestShare(t *testing.T) {
	onBoth(t, func(b *bench) {
		small := b.scope(KindDeployment, "small", config.Limits{RPM: rate(2)})
		large := b.scope(KindDeployment, "large", config.Limits{RPM: rate(4)})
		key := b.scope(KindKey, "k", config.Limits{RPM: rate(100)})
		var got []int
		for range 6 {
			v := b.ask(Ask{Demand: b.costing(1), Scopes: []*Scope{key}, Candidates: []*Scope{small, large}, Usage: true})
			got = append(got, granted(b, v).Chosen)
		}
		if want := fmt.Sprint([]int{0, 1, 1, 0, 1, 1}); fmt.Sprint(got) != want {
			b.Errorf("chosen %v, want %v", got, want)
		}
		v := b.ask(Ask{Demand: b.costing(1), Scopes: []*Scope{key}, Candidates: []*Scope{small, large}, Usage: true})
		if v.Grant != nil || !v.Busy || v.Wait <= 0 || v.Wait > 65*time.Second {
			b.Errorf("verdict = %+v", v)
		}
		b.flushed()
		b.want(b.key("r:key:k"), map[string]string{"w": fmt.Sprintf("%d:6:60", start/5000)}) // the refused one counts nowhere
	})
}

func TestAuditCountsAndLetsPass(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := NewScope("tg", Owner{Kind: KindKey, ID: "k", Home: b.home(KindKey), Zone: time.UTC, Enforce: config.Audit, Limits: config.Limits{
			Budgets: []config.Budget{usd(10, config.Day)}, RPM: rate(1),
		}})
		granted(b, b.reserve(b.costing(8), key))
		v := b.reserve(b.costing(8), key)
		granted(b, v)
		if len(v.Would) != 2 || v.Would[0].Kind != FailBudget || v.Would[1].Kind != FailRPM {
			b.Errorf("would = %+v", v.Would)
		}
		b.want(b.key("b:key:k"), map[string]string{"uday.r": "16"})
	})
}

func TestVoidTakesEverythingBack(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{
			Budgets: []config.Budget{usd(10, config.Day), {Unit: config.Requests, Amount: 5, Per: config.Day}},
			RPM:     rate(5), TPM: rate(100),
		})
		g := granted(b, b.reserve(b.costing(8), key))
		b.want(b.key("b:key:k"), map[string]string{"uday.r": "8", "rday.r": "1"})
		b.settle(g, Ending{Void: true})
		b.want(b.key("b:key:k"), map[string]string{"uday.r": "0", "uday.s": "0", "rday.r": "0", "rday.s": "0"})
		b.want(b.key("r:key:k"), map[string]string{"w": fmt.Sprintf("%d:0:0", start/5000)})
	})
}

func TestRefusalWritesNothing(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{Budgets: []config.Budget{usd(10, config.Minute)}, RPM: rate(1), Parallel: rate(5)})
		b.settle(granted(b, b.reserve(b.costing(10), key)), Ending{Nano: 10})
		if b.client == nil {
			return // the TTLs of the embedded store move only when told
		}
		look := func() string {
			return fmt.Sprint(
				b.client.HGetAll(b.Context(), b.key("b:key:k")).Val(), b.client.HGetAll(b.Context(), b.key("r:key:k")).Val(),
				b.client.PExpireTime(b.Context(), b.key("b:key:k")).Val(), b.client.PExpireTime(b.Context(), b.key("r:key:k")).Val(),
				b.client.DBSize(b.Context()).Val(),
			)
		}
		before := look()
		for range 3 {
			refusedBy(b, b.reserve(b.costing(1), key), FailBudget, key)
		}
		if after := look(); after != before {
			b.Errorf("a refusal changed\n%s\nto\n%s", before, after)
		}
	})
}

func TestWrongTypeReachesOnlyItsOwner(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{Budgets: []config.Budget{usd(10, config.Day)}, RPM: rate(5)})
		team := b.scope(KindTeam, "t", config.Limits{Budgets: []config.Budget{usd(0, config.Day)}})
		set := pipeline.Declare(b.backend.Batch("test"), "test", pipeline.Raw, "SET", b.key("r:key:k"), "x")
		if _, err := set.Get(b.Context()); err != nil {
			b.Fatal(err)
		}
		v := b.reserve(b.costing(1), key, team)
		refusedBy(b, v, FailBudget, team) // an exhausted budget is still what is named
		if v.Failures[1].Kind != FailBroken || v.Failures[1].Scope != key {
			b.Errorf("failures = %+v", v.Failures)
		}
		refusedBy(b, b.reserve(b.costing(1), key), FailBroken, key)
		v = b.ask(Ask{Demand: b.costing(1), Scopes: []*Scope{key}, DenyBudgets: true})
		granted(b, v)
		if len(v.Broken) != 1 {
			b.Errorf("broken = %v", v.Broken)
		}
		b.settle(v.Grant, Ending{Nano: 1})
		b.want(b.key("b:key:k"), map[string]string{"uday.s": "1", "uday.r": "0"})
	})
}

// The caller names the next period too, so that a clock that lags over the end of one costs no second trip.
func TestLaggingClockCostsNoTrip(t *testing.T) {
	onBoth(t, func(b *bench) {
		key := b.scope(KindKey, "k", config.Limits{Budgets: []config.Budget{usd(100, config.Minute)}})
		b.lag = 3_000
		granted(b, b.reserve(b.costing(60), key)) // learns how far the clocks are apart
		b.ms += 60_001
		b.lag = 6_000
		batch := b.backend.Batch("test")
		v, err := b.limiter.Reserve(batch, Ask{Demand: b.costing(100), Scopes: []*Scope{key}}).Get(b.Context(), b.deferred)
		if err != nil {
			b.Fatal(err)
		}
		granted(b, v)
		if batch.Trips() != 1 {
			b.Errorf("%d trips, want 1", batch.Trips())
		}
		b.ms += 300_000
		b.lag = 300_000 // more than a period apart: it is told the time, and asks again
		batch = b.backend.Batch("test")
		if v, err = b.limiter.Reserve(batch, Ask{Demand: b.costing(100), Scopes: []*Scope{key}}).Get(b.Context(), b.deferred); err != nil {
			b.Fatal(err)
		}
		granted(b, v)
		if batch.Trips() != 2 {
			b.Errorf("%d trips, want 2", batch.Trips())
		}
	})
}
