package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
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

// Trip is one pipeline sent to Redis and answered.
type Trip struct {
	N        uint64    `json:"n"` // counts all trips of the process
	At       time.Time `json:"at"`
	Nanos    int64     `json:"duration_ns"`
	Kind     Kind      `json:"kind"`
	Caller   string    `json:"caller"`  // the request, the first one when several share the trip
	Batches  int       `json:"batches"` // how many requests' batches share it; of a deferred trip, how many writes
	Commands []Command `json:"commands"`
	Error    string    `json:"error,omitempty"` // of the transport; commands' own errors stand with them
}

// Duration is how long the trip took.
func (t Trip) Duration() time.Duration { return time.Duration(t.Nanos) }

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
	}
}

// Describe implements prometheus.Collector.
func (t *Tracer) Describe(ch chan<- *prometheus.Desc) {
	t.seconds.Describe(ch)
	t.commands.Describe(ch)
}

// Collect implements prometheus.Collector.
func (t *Tracer) Collect(ch chan<- prometheus.Metric) {
	t.seconds.Collect(ch)
	t.commands.Collect(ch)
}

// Trips returns the remembered trips, the newest first.
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

func (t *Tracer) start() time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.Now()
}

// tripInfo says what a trip is for. Owners run parallel to its commands.
type tripInfo struct {
	kind    Kind
	caller  string
	batches int
	owners  []string
}

// trip records one pipeline.
func (t *Tracer) trip(ctx context.Context, started time.Time, addr string, info tripInfo, cmds []redis.Cmder) {
	if t == nil {
		return
	}
	kind, caller, batches, owners := info.kind, info.caller, info.batches, info.owners
	took := time.Since(started)
	transport := transportError(cmds)
	result := "ok"
	if transport != nil {
		result = "error"
	}
	t.seconds.WithLabelValues(string(kind), result).Observe(took.Seconds())
	for _, o := range owners {
		t.commands.WithLabelValues(o).Inc()
	}
	if t.keep == 0 {
		return
	}
	trip := Trip{At: started, Nanos: took.Nanoseconds(), Kind: kind, Caller: caller, Batches: batches, Commands: make([]Command, len(cmds))}
	if transport != nil {
		trip.Error = transport.Error()
	}
	for i, c := range cmds {
		trip.Commands[i] = describe(owners[i], c)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	trip.N = t.n + 1
	if len(t.trips) < t.keep {
		t.trips = append(t.trips, trip)
	} else {
		t.trips[int(t.n)%t.keep] = trip
	}
	t.n++
}

func describe(owner string, c redis.Cmder) Command {
	d := Command{Owner: owner, Name: c.Name()}
	args := c.Args()
	key := 1
	if d.Name == "evalsha" || d.Name == "eval" {
		key = 3
	}
	if len(args) > key {
		d.Key = fmt.Sprint(args[key])
	}
	if err := c.Err(); isReply(err) {
		d.Error = err.Error()
	}
	return d
}

func transportError(cmds []redis.Cmder) error {
	for _, c := range cmds {
		if err := c.Err(); err != nil && !isReply(err) {
			return err
		}
	}
	return nil
}
