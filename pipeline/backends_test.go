package pipeline_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// What one batch asks of two servers leaves at the same time: both have been asked before either has answered, and that is
// one wait.
func TestTwoBackendsAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	counters, first, _ := behind(t)
	cache, second, server := behind(t)
	server.Client().Set(t.Context(), "answer", "42", 0)
	if err := counters.Load(t.Context(), count); err != nil {
		t.Fatal(err)
	}
	first.Reset()
	first.Stall(true)
	second.Stall(true)
	batch := counters.Batch("r")
	n := pipeline.Eval(batch, "a", integer, count, []string{"n"})
	answer := pipeline.Declare(batch.On(cache), "b", pipeline.Bytes, "GET", "answer")
	missing := pipeline.Declare(batch.On(cache), "b", pipeline.Bytes, "GET", "nothing")
	done := make(chan error, 1)
	go func() {
		_, err := n.Get(t.Context())
		done <- err
	}()
	eventually(t, "both are asked before either answers", func() bool {
		return len(first.Trips()) == 1 && len(second.Trips()) == 1
	})
	first.Stall(false)
	second.Stall(false)
	if err := <-done; err != nil {
		t.Errorf("counters: %v", err)
	}
	if v, err := answer.Get(t.Context()); string(v) != "42" || err != nil {
		t.Errorf("cache: %q, %v", v, err)
	}
	if _, err := missing.Get(t.Context()); !errors.Is(err, pipeline.ErrNil) {
		t.Errorf("missing: %v", err)
	}
	first.WaitQuiet(20 * time.Millisecond)
	second.WaitQuiet(20 * time.Millisecond)
	if batch.Trips() != 1 || len(first.Trips()) != 1 || len(second.Trips()) != 1 {
		t.Errorf("%d waits, %d and %d trips; want one each", batch.Trips(), len(first.Trips()), len(second.Trips()))
	}
	if c := second.Trips()[0].Commands; len(c) != 2 {
		t.Errorf("the cache's trip holds %v, want both of its commands", c)
	}
}

// A server that hangs holds up nobody but who asks for its own replies.
func TestStalledBackendDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	counters, _, _ := behind(t)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	cache := open(t, pipeline.Options{URL: proxy.URL(), Deadline: 60 * time.Second})
	for range 5 {
		proxy.Stall(true)
		batch := counters.Batch("r")
		n := pipeline.Eval(batch, "a", integer, count, []string{"n"})
		answer := pipeline.Declare(batch.On(cache), "b", pipeline.Bytes, "GET", "answer")
		if _, err := n.Get(t.Context()); err != nil { // with the other it would take a minute, and be an error
			t.Errorf("counters: %v", err)
		}
		proxy.Stall(false)
		if _, err := answer.Get(t.Context()); !errors.Is(err, pipeline.ErrNil) {
			t.Errorf("cache: %v", err)
		}
	}
	away := open(t, pipeline.Options{URL: proxy.URL(), Deadline: 100 * time.Millisecond})
	server.Kill()
	batch := counters.Batch("r")
	n := pipeline.Eval(batch, "a", integer, count, []string{"n"})
	answer := pipeline.Declare(batch.On(away), "b", pipeline.Bytes, "GET", "answer")
	if _, err := answer.Get(t.Context()); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("a dead cache: %v", err)
	}
	if v, err := n.Get(t.Context()); v != 6 || err != nil {
		t.Errorf("counters beside a dead cache: %d, %v; want 6", v, err)
	}
}

func TestSameBackendIsOnePipeline(t *testing.T) {
	t.Parallel()
	b, proxy, _ := behind(t)
	batch := b.Batch("r")
	if batch.On(b) != batch {
		t.Error("On the same backend is another batch")
	}
	pipeline.Declare(batch, "a", pipeline.Raw, "SET", "x", "1")
	v, err := pipeline.Declare(batch.On(b), "b", pipeline.Bytes, "GET", "x").Get(t.Context())
	if string(v) != "1" || err != nil {
		t.Errorf("get: %q, %v", v, err)
	}
	proxy.WaitQuiet(20 * time.Millisecond)
	if trips := proxy.Trips(); len(trips) != 1 || len(trips[0].Commands) != 2 || batch.Trips() != 1 {
		t.Errorf("trips = %+v, %d waits; want one with both", trips, batch.Trips())
	}
}

func TestSameStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, a, b   string
		same, memory bool // the same store; the same server
	}{
		{"the same", "redis://h:6379/0", "redis://h:6379/0", true, true},
		{"left out port and database", "redis://h", "redis://h:6379/0", true, true},
		{"left out host", "redis://", "redis://localhost:6379", true, true},
		{"another user", "redis://a:b@h/1", "redis://c:d@h/1", true, true},
		{"over TLS or not", "rediss://h/0", "redis://h/0", true, true},
		{"another database", "redis://h/0", "redis://h/1", false, true},
		{"another port", "redis://h:1", "redis://h:2", false, false},
		{"another host", "redis://h", "redis://g", false, false},
		{"IPv6", "redis://[::1]", "redis://[::1]:6379", true, true},
		{"a socket", "unix:///run/r.sock?db=1", "unix:///run/r.sock?db=1", true, true},
		{"another socket", "unix:///run/r.sock", "unix:///run/s.sock", false, false},
		{"another database of a socket", "unix:///run/r.sock", "unix:///run/r.sock?db=2", false, true},
		{"a cluster by other nodes", "redis+cluster://a:1,b:2", "redis+cluster://c:3,b:2", true, true},
		{"another cluster", "redis+cluster://a:1,b:2", "redis+cluster://c:3,d:4", false, false},
		{"a cluster's node alone", "redis+cluster://a:1", "redis://a:1", false, false},
		{"a master by other sentinels", "redis+sentinel://a,b/m/0", "redis+sentinel://b,c/m/0", true, true},
		{"another master", "redis+sentinel://a,b/m/0", "redis+sentinel://a,b/n/0", false, false},
		{"another database of a master", "redis+sentinel://a/m/0", "redis+sentinel://a/m/1", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, b := open(t, pipeline.Options{URL: tt.a}), open(t, pipeline.Options{URL: tt.b})
			if pipeline.SameStore(tt.a, tt.b) != tt.same || pipeline.SameStore(tt.b, tt.a) != tt.same {
				t.Errorf("the same store: %t", !tt.same)
			}
			if a.SharesMemory(b) != tt.memory || b.SharesMemory(a) != tt.memory {
				t.Errorf("the same server: %t", !tt.memory)
			}
		})
	}
	for _, wrong := range []string{"", "h:6379", "http://h"} {
		if pipeline.SameStore(wrong, wrong) {
			t.Errorf("%q is a store", wrong)
		}
	}
}

// Memory asks all masters of a cluster, and says which did not tell.
func TestMemoryOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Args("--maxmemory", "100mb"))
	b := open(t, pipeline.Options{URL: c.URL(), Deadline: 5 * time.Second})
	m, err := b.Memory(t.Context())
	if err != nil || len(m) != 3 {
		t.Fatalf("memory = %+v, %v; want three", m, err)
	}
	for _, m := range m {
		if m.Max != 100<<20 || m.Used <= 0 {
			t.Errorf("memory = %+v", m)
		}
	}
	c.KillMaster("a")
	if m, err := b.Memory(t.Context()); len(m) != 2 || !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("with one dead: %+v, %v", m, err)
	}
}
