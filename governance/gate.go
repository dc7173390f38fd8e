package governance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/governance/price"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/journal"
)

// Options of a Gate.
type Options struct {
	Config   *config.Config
	Counters *pipeline.Backend // counters, leases and spend streams
	Cache    *pipeline.Backend // cached answers; nil: with the counters
	// Journal keeps on disk what Redis has not answered within JournalAfter; nil keeps nothing. The gate closes it.
	Journal      *journal.Journal
	JournalAfter time.Duration
	// Identities are looked for in Redis when the configuration file does not have them. Without it Redis is never asked
	// for one, and a key that the file does not have is refused at once. What the file has stands in front: its keys, by
	// secret and by id, and its teams, orgs, users, projects and members, by id.
	Identities bool
	// Source has the identities that Redis has no copy of; nil: Redis has them all.
	Source  identity.Source
	Metrics *Metrics
	Spans   trace.Tracer // makes a span of each call; nil makes none
	Log     *slog.Logger
}

// Gate decides on calls and settles them. It is safe for concurrent use.
type Gate struct {
	backend  *pipeline.Backend
	store    *pipeline.Backend // of cached answers; may be the same
	deferred *pipeline.Deferred
	stores   *pipeline.Deferred // the cache's; may be the same
	limiter  *limit.Limiter
	rows     *identity.Memory // nil: identities come from the configuration file only
	prices   *price.Table
	metrics  *Metrics
	spans    trace.Tracer // nil: off
	log      *slog.Logger
	learned  learned
	outages  seldom // what is logged of requests that redis gave no verdict on
	totals   ledger.Totals
	now      func() time.Time
	random   func(n int) int

	policy   atomic.Pointer[policy]
	replicas atomic.Int64
	draining atomic.Bool
	full     atomic.Bool // the cache leaves the memory that is left to the counters

	mu    sync.Mutex
	calls int
	idle  chan struct{} // closed when draining and no call is left

	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// New makes a gate and starts its upkeep; Close ends it. It waits up to a second for Redis to take the scripts.
func New(opt Options) (*Gate, error) {
	table, err := price.Builtin()
	if err != nil {
		return nil, fmt.Errorf("price table: %w", err)
	}
	g := &Gate{
		backend: opt.Counters, store: cmp.Or(opt.Cache, opt.Counters), prices: table, metrics: opt.Metrics, log: opt.Log, now: time.Now, random: rand.IntN,
		spans: opt.Spans, idle: make(chan struct{}),
	}
	if g.metrics == nil {
		g.metrics = NewMetrics()
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	cfg := opt.Config
	g.limiter = limit.New(limit.Options{
		Prefix: cfg.Redis.Prefix, StreamMax: cfg.Ledger.StreamMax, Clustered: g.backend.Clustered(),
		Found: func(list []limit.Lost) { g.lost(g.policy.Load(), nil, list) },
	})
	if err := g.Apply(cfg); err != nil {
		return nil, err
	}
	g.replicas.Store(1)
	g.deferred = pipeline.NewDeferred(g.backend, pipeline.DeferredOptions{
		Journal: opt.Journal, JournalAfter: opt.JournalAfter, Log: g.log,
	})
	g.stores = g.deferred
	if g.store != g.backend {
		g.stores = pipeline.NewDeferred(g.store, pipeline.DeferredOptions{Log: g.log})
	}
	g.metrics.watch(g)
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	if opt.Identities {
		g.rows = identity.NewMemory(identity.Options{
			Backend: opt.Counters, Deferred: g.deferred, Prefix: cfg.Redis.Prefix, Source: opt.Source, Log: g.log,
		})
		g.stopped.Go(func() { g.rows.Watch(ctx) })
	}
	loaded := g.load(ctx) // before the first request, which would pay for it
	g.stopped.Go(func() { g.upkeep(ctx, loaded) })
	return g, nil
}

// Apply puts another configuration in force for the calls that begin from now on. Calls under way keep the one they
// began with. Settings of the process (listeners, the store) stay as they were at the start.
func (g *Gate) Apply(cfg *config.Config) error {
	p, err := newPolicy(cfg, g.prices)
	if err != nil {
		return err
	}
	g.policy.Store(p)
	return nil
}

var errAway = fmt.Errorf("%w: it did not answer lately", pipeline.ErrUnavailable)

// Ready says why the gate should not be sent requests; nil means it should: it is not draining, Redis keeps its counters,
// and it answers, or redis.on_failure lets requests pass without it. While the breaker is open that is told at once, and
// the upkeep finds out when it ends; else Redis is asked, once.
func (g *Gate) Ready(ctx context.Context) error {
	if g.draining.Load() {
		return errors.New("draining")
	}
	err := errAway
	if g.backend.Answering() {
		err = g.backend.CheckMemoryPolicy(ctx)
	}
	if on := g.policy.Load().cfg.Redis.OnFailure; errors.Is(err, pipeline.ErrUnavailable) && on.Budgets != "deny" && on.Rates != "deny" {
		return nil
	}
	return err
}

// Totals are what this process has settled so far.
func (g *Gate) Totals() ledger.Sum { return g.totals.Sum() }

// Pending is how many deferred writes Redis has not answered.
func (g *Gate) Pending() int { return g.deferred.Pending() }

// MaxBody is the longest request body that is read, in bytes.
func (g *Gate) MaxBody() int64 { return g.policy.Load().cfg.Defaults.MaxBody }

// begin counts a call in; it fails when the gate is draining.
func (g *Gate) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining.Load() {
		return false
	}
	g.calls++
	return true
}

func (g *Gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls--
	if g.calls == 0 && g.draining.Load() {
		close(g.idle)
	}
}

// Drain refuses new calls and returns when those under way have ended, or ctx has.
func (g *Gate) Drain(ctx context.Context) error {
	g.mu.Lock()
	if !g.draining.Swap(true) && g.calls == 0 {
		close(g.idle)
	}
	left := g.calls
	g.mu.Unlock()
	select {
	case <-g.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d calls were still running: %w", left, ctx.Err())
	}
}

// Close sends what is still to be written and ends the upkeep. It reports writes that Redis did not take before ctx
// ended.
func (g *Gate) Close(ctx context.Context) error {
	g.stop()
	g.stopped.Wait()
	if g.rows != nil {
		g.rows.Close()
	}
	if g.stores != g.deferred {
		g.stores.Drain(ctx) // copies of answers: nothing is lost but time
	}
	left, lost := g.deferred.Drain(ctx)
	if left > lost {
		g.log.Warn("redis did not answer: deferred writes stay in the journal, for the next start", "writes", left-lost)
	}
	if lost > 0 {
		return fmt.Errorf("%d deferred writes were not answered by redis and are lost", lost)
	}
	return nil
}
