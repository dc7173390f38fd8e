package pipeline

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Kind says what a trip was for.
type Kind string

// The kinds of trips.
const (
	KindRequest  Kind = "request"  // somebody waits for it
	KindAgain    Kind = "again"    // the second try of what provably did not run; somebody waits for it
	KindDeferred Kind = "deferred" // nobody waits for it
	KindUpkeep   Kind = "upkeep"   // the process' own
)

// Kinds lists the kinds of trips.
var Kinds = []Kind{KindRequest, KindAgain, KindDeferred, KindUpkeep}

// Bounds of what is remembered of one trip: a flush can be thousands of commands for as many requests.
const (
	maxCommandsKept = 256
	maxCallersKept  = maxMerged // all of a trip that requests wait for
)

// Trip is one pipeline sent to a server, answered or not.
type Trip struct {
	N      uint64    `json:"n"` // counts all trips of the process
	At     time.Time `json:"at"`
	Nanos  int64     `json:"duration_ns"`
	Kind   Kind      `json:"kind"`
	Server string    `json:"server"` // host:port, a socket's path, or the name that sentinels know the master by
	// Callers are the requests that share the trip; of a deferred trip those whose writes it carries, as far as they are
	// named, 64 at most.
	Callers []string `json:"callers"`
	Batches int      `json:"batches"` // how many requests' batches share it; of a deferred trip, how many writes
	// Queued is how long the oldest of the batches waited for its turn before that, in nanoseconds; 0 of a deferred trip.
	Queued   int64     `json:"queued_ns"`
	Late     bool      `json:"late"`           // the deadline passed: its callers had gone on
	Sent     int64     `json:"bytes_sent"`     // of commands, see Portion
	Received int64     `json:"bytes_received"` // of replies
	Size     int       `json:"size"`           // how many commands
	Owners   []Portion `json:"owners"`
	Commands []Command `json:"commands"`        // the first 256
	Error    string    `json:"error,omitempty"` // of the transport
}

// Duration is how long the trip took.
func (t *Trip) Duration() time.Duration { return time.Duration(t.Nanos) }

// Portion is what one component has of a trip. Bytes are those of the protocol, computed from commands and replies:
// which trip the bytes on a connection belong to, go-redis does not tell. They leave out what opens a connection, and
// TLS. A command that provably never left counts none.
type Portion struct {
	Owner    string `json:"owner"`
	Commands int    `json:"commands"`
	Errors   int    `json:"errors"`
	Sent     int64  `json:"bytes_sent"`
	Received int64  `json:"bytes_received"`
}

// Command is one command of a trip. Values are left out: they may be secrets.
type Command struct {
	Owner string `json:"owner"`
	Name  string `json:"name"`
	Key   string `json:"key,omitempty"` // the first one
	Error string `json:"error,omitempty"`
}

// Tracer counts trips for the metrics and, when it keeps them, remembers the newest ones for /debug/trips. A nil
// Tracer does nothing. It is safe for concurrent use.
type Tracer struct {
	seconds  *prometheus.HistogramVec
	commands *prometheus.CounterVec
	replies  prometheus.Counter
	spans    trace.Tracer // nil: none are made

	mu    sync.Mutex
	n     uint64
	keep  int
	trips []Trip // a ring, the newest at n-1 modulo keep
}

// NewTracer makes a tracer that keeps the newest trips; with keep 0 it only counts.
func NewTracer(keep int) *Tracer {
	return &Tracer{
		keep: keep,
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tollgate_redis_trip_seconds",
			Help:    "Duration of round trips to Redis; kind request and again are waited for.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25},
		}, []string{"kind", "result"}),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_redis_commands_total",
			Help: "Commands sent to Redis by the component that asked.",
		}, []string{"owner"}),
		replies: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_redis_late_replies_total",
			Help: "Replies that came after their caller had gone on, and were of use all the same.",
		}),
	}
}

// Export has each trip made a span from now on: a child of the span in the context of each request that waits for it, or
// one of its own where nobody does. Call it before the first trip.
func (t *Tracer) Export(spans trace.Tracer) { t.spans = spans }

// Describe implements prometheus.Collector.
func (t *Tracer) Describe(ch chan<- *prometheus.Desc) {
	t.seconds.Describe(ch)
	t.commands.Describe(ch)
	t.replies.Describe(ch)
}

// Collect implements prometheus.Collector.
func (t *Tracer) Collect(ch chan<- prometheus.Metric) {
	t.seconds.Collect(ch)
	t.commands.Collect(ch)
	t.replies.Collect(ch)
}

// Trips returns the remembered trips, the newest first. They are shared: do not change them.
func (t *Tracer) Trips() []Trip {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Trip, 0, len(t.trips))
	for i := range t.trips {
		list = append(list, t.trips[(int(t.n)-1-i+2*len(t.trips))%len(t.trips)])
	}
	return list
}

// now is the time, for what only a tracer wants to know.
func (t *Tracer) now() time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.Now()
}

// lateReply counts a reply that came late and was of use.
func (t *Tracer) lateReply() {
	if t != nil {
		t.replies.Inc()
	}
}

// remember counts a trip that is over and keeps it.
func (t *Tracer) remember(trip *Trip) {
	result := "ok"
	if trip.Error != "" {
		result = "error"
	}
	t.seconds.WithLabelValues(string(trip.Kind), result).Observe(trip.Duration().Seconds())
	for i := range trip.Owners {
		t.commands.WithLabelValues(trip.Owners[i].Owner).Add(float64(trip.Owners[i].Commands))
	}
	if t.keep == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	trip.N = t.n + 1
	if len(t.trips) < t.keep {
		t.trips = append(t.trips, *trip)
	} else {
		t.trips[int(t.n)%t.keep] = *trip
	}
	t.n++
}
