package governance

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

func TestFullest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		list []pipeline.Memory
		full bool
	}{
		{"nobody told", nil, false},
		{"no bound", []pipeline.Memory{{Used: 1 << 40}}, false},
		{"a byte below", []pipeline.Memory{{Used: 799, Max: 1000}}, false},
		{"at it", []pipeline.Memory{{Used: 800, Max: 1000}}, true},
		{"beyond maxmemory", []pipeline.Memory{{Used: 1 << 50, Max: 1 << 40}}, true},
		{"one master of three", []pipeline.Memory{{Used: 1, Max: 1000}, {Used: 900, Max: 1000}, {Used: 1}}, true},
	} {
		if m, full := fullest(tt.list); full != tt.full || full && m.Used*100 < m.Max*80 {
			t.Errorf("%s: %+v, %t", tt.name, m, full)
		}
	}
}

// buffer is a log that is read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), text)
}

// newRoom is a gate that keeps its counters at one URL and cached answers at another, with its log.
func newRoom(t *testing.T, counters, cache string) (*replica, *buffer) {
	t.Helper()
	open := func(url string) *pipeline.Backend {
		b, err := pipeline.Open(pipeline.Options{URL: url, Deadline: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	backend := open(counters)
	store := backend
	if !pipeline.SameStore(counters, cache) {
		store = open(cache)
		t.Cleanup(func() { _ = store.Close() })
	}
	log := new(buffer)
	return newReplica(t, backend, cached, func(o *Options) {
		o.Identities, o.Cache, o.Log = false, store, slog.New(slog.NewTextHandler(log, nil))
	}), log
}

// fill makes what a server uses so large that a percent of it is more than ever comes and goes. The command is a short one:
// a long one stays in buffers for a while, on its way to replicas too.
func fill(t *testing.T, c *redis.Client, key string) {
	t.Helper()
	if err := c.SetRange(t.Context(), key, 64<<20-1, "x").Err(); err != nil {
		t.Fatal(err)
	}
}

// used sets maxmemory so that this much of it is in use.
func used(t *testing.T, c *redis.Client, percent int64) {
	t.Helper()
	for line := range strings.Lines(c.Info(t.Context(), "memory").Val()) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(n*100/percent, 10)).Err(); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("INFO memory has no used_memory")
}

// cacheFull is the metric.
func (r *replica) cacheFull() float64 {
	r.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.gate.metrics)
	families, err := registry.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tollgate_cache_full" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	r.Fatal("no tollgate_cache_full")
	return 0
}

// The cache stops writing to the counters' Redis when that is full to 80 %, goes on reading, and writes again when there is
// room; the counters never stop.
func TestCacheLeavesRoomForTheCounters(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := server.Client()
	fill(t, c, "filler")
	r, log := newRoom(t, server.URL(), server.URL())
	look := func(what string, full float64, stops, goesOn int) {
		t.Helper()
		r.gate.lookForRoom(t.Context())
		if got := r.cacheFull(); got != full {
			t.Errorf("%s: tollgate_cache_full = %v, want %v", what, got, full)
		}
		if s, g := log.count("answers are not stored"), log.count("answers are stored again"); s != stops || g != goesOn {
			t.Errorf("%s: said %d times that it stops and %d that it goes on, want %d and %d", what, s, g, stops, goesOn)
		}
	}
	chat := func(text string, stored int) outcome {
		t.Helper()
		o := r.chat(text)
		r.settled()
		if n := entries(t, server); n != stored {
			t.Errorf("%s: %d answers are kept, want %d", text, n, stored)
		}
		return o
	}
	look("no bound", 0, 0, 0)
	used(t, c, 79)
	look("79 %", 0, 0, 0)
	chat("a", 1)
	used(t, c, 81)
	look("81 %", 1, 1, 0)
	look("still", 1, 1, 0)
	chat("b", 1)
	if o := chat("a", 1); o.reason != "tollgate_cache_hit" {
		t.Errorf("what is kept is not served: %+v", o)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if r.gate.lookForRoom(gone); r.cacheFull() != 1 {
		t.Error("a Redis that does not tell counts as one with room")
	}
	used(t, c, 79)
	look("room again", 0, 1, 1)
	chat("b", 2)
	if got := c.HGet(t.Context(), "tg:{k:file}:b:key:file", "ulifetime.s").Val(); got != strconv.Itoa(3*answerCost) {
		t.Errorf("spent %s, want %d", got, 3*answerCost)
	}
}

// Nobody has to look but the upkeep itself.
func TestUpkeepLooksForRoom(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	fill(t, server.Client(), "filler")
	r, _ := newRoom(t, server.URL(), server.URL())
	used(t, server.Client(), 90)
	r.until("it is found to be full", func() bool { return r.cacheFull() == 1 })
	used(t, server.Client(), 50)
	r.until("it is found to have room", func() bool { return r.cacheFull() == 0 })
}

// Two databases of one server share its memory; two servers do not.
func TestWhoseMemoryTheCacheFills(t *testing.T) {
	t.Parallel()
	server, other := redistest.Start(t), redistest.Start(t)
	fill(t, server.Client(), "filler")
	used(t, server.Client(), 90)
	for cache, full := range map[string]float64{
		"redis://" + server.Addr() + "/1": 1,
		other.URL():                       0,
	} {
		r, _ := newRoom(t, server.URL(), cache)
		r.gate.lookForRoom(t.Context())
		if got := r.cacheFull(); got != full {
			t.Errorf("cache at %s: tollgate_cache_full = %v, want %v", cache, got, full)
		}
	}
}

// Of a cluster one master is enough: nobody knows where the next answer goes.
func TestOneMasterWithoutRoom(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	r, _ := newRoom(t, c.URL(), c.URL())
	if r.gate.lookForRoom(t.Context()); r.cacheFull() != 0 {
		t.Error("full without a bound")
	}
	one := c.MasterOf("filler").Server.Client()
	fill(t, one, "filler")
	used(t, one, 85)
	if r.gate.lookForRoom(t.Context()); r.cacheFull() != 1 {
		t.Error("one master at 85 % goes unnoticed")
	}
}
