package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// once adds ARGV[3] to KEYS[2] exactly once.
var once = pipeline.NewOnce("once", `return redis.call('INCRBY', KEYS[2], ARGV[3])`)

func add(d *pipeline.Deferred, n int) {
	w := d.Writes()
	w.Once("test", once, []string{"w:" + w.Writer(), "sum"}, n)
	w.Close()
}

func drain(t *testing.T, d *pipeline.Deferred) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if left, _ := d.Drain(ctx); left > 0 {
		t.Fatalf("%d writes were not answered", left)
	}
}

func TestDeferredLeavesOnClose(t *testing.T) {
	t.Parallel()
	b, proxy, server := behind(t)
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{Deadline: time.Hour})
	w := d.Writes()
	w.Do("a", "SET", "x", "1")
	w.Do("b", "SET", "y", "2")
	time.Sleep(30 * time.Millisecond)
	if n := len(proxy.Trips()); n != 0 {
		t.Fatalf("%d trips before Close", n)
	}
	w.Close()
	w.Close()
	drain(t, d)
	proxy.WaitQuiet(20 * time.Millisecond)
	if trips := proxy.Trips(); len(trips) != 1 || len(trips[0].Commands) != 2 {
		t.Errorf("trips = %+v, want one with two commands", trips)
	}
	if v := server.Client().Get(t.Context(), "y").Val(); v != "2" {
		t.Errorf("y = %q", v)
	}
}

func TestDeferredLeavesAtTheDeadline(t *testing.T) {
	t.Parallel()
	b, _, server := behind(t)
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{Deadline: 50 * time.Millisecond})
	d.Writes().Do("a", "SET", "x", "1") // never closed
	for range 100 {
		if server.Client().Exists(t.Context(), "x").Val() == 1 {
			drain(t, d)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("an open batch did not leave at its deadline")
}

func TestDeferredWritesMerge(t *testing.T) {
	t.Parallel()
	b, proxy, server := behind(t)
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	proxy.Delay(5 * time.Millisecond)
	var wg sync.WaitGroup
	const callers, each = 64, 20
	for range callers {
		wg.Go(func() {
			for range each {
				add(d, 1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	drain(t, d)
	proxy.WaitQuiet(50 * time.Millisecond)
	if v := server.Client().Get(t.Context(), "sum").Val(); v != strconv.Itoa(callers*each) {
		t.Errorf("sum = %s, want %d", v, callers*each)
	}
	if trips := len(proxy.Trips()); trips*5 > callers*each {
		t.Errorf("%d trips for %d batches", trips, callers*each)
	}
}

// Replies are lost and scripts are thrown away at any moment; each write is applied exactly once.
func TestDeferredWritesApplyOnce(t *testing.T) {
	t.Parallel()
	b, proxy, server := behind(t)
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxFlush: 7})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // another process that loses and brings back the script between any two commands
		other := server.Client()
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(3)) * time.Millisecond):
				other.ScriptFlush(context.Background())
				other.ScriptLoad(context.Background(), once.Source())
				if rand.IntN(2) == 0 {
					other.ScriptFlush(context.Background())
				}
			}
		}
	})
	want := 0
	var cuts atomic.Int64
	armed := make(chan struct{}, 1)
	for i := 0; i < 2000 || cuts.Load() < 20 && i < 50_000; i++ { // a busy machine sends fewer, larger flushes
		select {
		case armed <- struct{}{}: // one lost reply at a time, so that each flush has a chance
			proxy.CutAfter(func(cmd []string) bool {
				if !strings.HasPrefix(strings.ToLower(cmd[0]), "eval") || rand.IntN(8) > 0 {
					return false
				}
				cuts.Add(1)
				<-armed
				return true
			})
		default:
		}
		add(d, i)
		want += i
		if rand.IntN(2) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	wg.Wait()
	drain(t, d)
	if cuts.Load() < 20 {
		t.Errorf("only %d replies were lost: the test shows nothing", cuts.Load())
	}
	if v := server.Client().Get(t.Context(), "sum").Val(); v != strconv.Itoa(want) {
		t.Errorf("sum = %s, want %d", v, want)
	}
}

func TestDeferredOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, err := pipeline.Open(pipeline.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	server.Kill()
	for range 10 {
		add(d, 1)
	}
	time.Sleep(100 * time.Millisecond)
	server.Restart()
	drain(t, d)
	if v := server.Client().Get(t.Context(), "sum").Val(); v != "10" {
		t.Errorf("sum = %s, want 10", v)
	}
}

func TestDeferredQueueIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, err := pipeline.Open(pipeline.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxPending: 20, MaxFlush: 5})
	server.Kill()
	for i := range 20 {
		w := d.Writes()
		w.Do("copy", "SET", fmt.Sprint("copy", i), "x")
		w.Close()
	}
	for range 15 {
		add(d, 1) // takes the place of copies
	}
	for range 10 {
		add(d, 1000) // some of these find no room
	}
	if n := d.Pending(); n > 20 {
		t.Errorf("%d pending, limit 20", n)
	}
	lost := d.Stats().Lost + d.Stats().Dropped
	server.Restart()
	drain(t, d)
	sum, _ := strconv.Atoi(server.Client().Get(t.Context(), "sum").Val())
	copies := len(server.Client().Keys(t.Context(), "copy*").Val())
	if sum < 15 || int64(45-15-sum/1000-copies) != lost {
		t.Errorf("sum %d, copies %d, lost %d: a write is neither applied nor counted as lost", sum, copies, lost)
	}
}

// Writes of several writers' numbers, as those of many tenants, leave in one flush and are all applied by it.
func TestNumbersOfManyPlacesShareAFlush(t *testing.T) {
	t.Parallel()
	b, proxy, server := behind(t)
	if err := b.Load(t.Context(), once); err != nil {
		t.Fatal(err)
	}
	proxy.Reset()
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	w := d.Writes()
	for i := range 30 {
		tag := fmt.Sprintf("{t%d}", i%3)
		w.Once("test", once, []string{tag + ":w:" + w.Writer(), tag + ":sum"}, 1)
	}
	w.Close()
	drain(t, d)
	for i := range 3 {
		if v := server.Client().Get(t.Context(), fmt.Sprintf("{t%d}:sum", i)).Val(); v != "10" {
			t.Errorf("sum %d = %s, want 10", i, v)
		}
	}
	proxy.WaitQuiet(20 * time.Millisecond)
	if trips := proxy.Trips(); len(trips) != 1 || len(trips[0].Commands) != 30 {
		t.Errorf("%d trips, want one with 30 commands", len(trips))
	}
}

// BenchmarkDeferred is what a write costs from its declaration to Redis' answer, when writes come as fast as one caller
// declares them.
func BenchmarkDeferred(b *testing.B) {
	server := redistest.Start(b)
	backend, err := pipeline.Open(pipeline.Options{URL: server.URL()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = backend.Close() })
	d := pipeline.NewDeferred(backend, pipeline.DeferredOptions{MaxPending: b.N + 1, MaxBytes: 1 << 40})
	keys := make([]string, b.N)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, key := range keys {
		w := d.Writes()
		w.Do("bench", "INCRBY", key, 1)
		w.Close()
	}
	for d.Pending() > 0 {
		time.Sleep(100 * time.Microsecond)
	}
	b.StopTimer()
	d.Drain(b.Context())
}
