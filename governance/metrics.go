package governance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tollgate-proxy/tollgate/governance/ledger"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// Metrics are the counters of a Gate. No label holds anything that a client chose: scopes show by kind, never by id.
type Metrics struct {
	requests *prometheus.CounterVec
	refusals *prometheus.CounterVec
	would    *prometheus.CounterVec
	tokens   *prometheus.CounterVec
	dollars  *prometheus.CounterVec
	cache    *prometheus.CounterVec
	overrun  prometheus.Counter
	unleased prometheus.Counter
	gauges   []prometheus.Collector
}

// NewMetrics makes the metrics of one Gate.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tollgate_" + name, Help: help}, labels)
	}
	return &Metrics{
		requests: counter("requests_total", "Admitted requests by how they ended.", "endpoint", "outcome"),
		refusals: counter("refusals_total", "Refused requests by reason and by the kind of scope whose limit refused.", "reason", "scope"),
		would:    counter("would_refuse_total", "Requests that a limit under audit would have refused.", "limit", "scope"),
		tokens:   counter("tokens_total", "Settled tokens.", "direction"),
		dollars:  counter("cost_dollars_total", "Settled cost in US dollars; the ledger holds the exact figure.", "provider"),
		cache:    counter("cache_lookups_total", "Answers from the response cache, and entries that could not be read.", "result"),
		overrun: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_reservation_overruns_total", Help: "Requests that cost more than was reserved for them.",
		}),
		unleased: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_admitted_without_redis_total", Help: "Requests let through by redis.on_failure.",
		}),
	}
}

// watch adds the gauges that read a gate's state.
func (m *Metrics) watch(g *Gate) {
	gauge := func(name, help string, read func() float64) {
		m.gauges = append(m.gauges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tollgate_" + name, Help: help}, read))
	}
	gauge("calls_in_flight", "Calls under way in this process.", func() float64 {
		g.mu.Lock()
		defer g.mu.Unlock()
		return float64(g.calls)
	})
	gauge("leases_held", "Leased requests of this process.", func() float64 { return float64(g.limiter.InFlight()) })
	m.gauges = append(m.gauges, writes{g.deferred})
	gauge("redis_up", "1 while Redis answers, 0 while requests do not wait for it.", func() float64 {
		if g.backend.Answering() {
			return 1
		}
		return 0
	})
	m.gauges = append(m.gauges, nodes{g.backend, g.store})
	gauge("cache_full", "1 while answers are not stored because the counters' Redis, which the cache shares, is nearly full.", func() float64 {
		if g.full.Load() {
			return 1
		}
		return 0
	})
	gauge("replicas", "Live tollgate processes on the same Redis.", func() float64 { return float64(g.replicas.Load()) })
}

func (m *Metrics) all() []prometheus.Collector {
	return append([]prometheus.Collector{
		m.requests, m.refusals, m.would, m.tokens, m.dollars, m.cache, m.overrun, m.unleased,
	}, m.gauges...)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

func (m *Metrics) refused(r *refusal.Refusal) {
	m.refusals.WithLabelValues(string(r.Reason), r.ScopeKind).Inc()
}

func (m *Metrics) wouldRefuse(f limit.Failure) {
	m.would.WithLabelValues(string(f.Kind), f.Scope.Kind).Inc()
}

func (m *Metrics) settled(r *ledger.Record) {
	m.requests.WithLabelValues(r.Endpoint, string(r.Outcome)).Inc()
	m.tokens.WithLabelValues("input").Add(float64(r.Input))
	m.tokens.WithLabelValues("output").Add(float64(r.Output))
	m.dollars.WithLabelValues(r.Provider).Add(float64(r.CostNano) / 1e9)
	if r.Reserved > 0 && r.CostNano > r.Reserved {
		m.overrun.Inc()
	}
}
