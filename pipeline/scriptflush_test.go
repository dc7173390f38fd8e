package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// behindAs is behind with options of the test's own.
func behindAs(t *testing.T, opt pipeline.Options) (*pipeline.Backend, *redistest.Proxy, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	opt.URL = proxy.URL()
	if opt.Deadline == 0 {
		opt.Deadline = 5 * time.Second
	}
	b, err := pipeline.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, proxy, server
}

// bothModes runs a test with scripts by digest and with whole ones.
func bothModes(t *testing.T, test func(*testing.T, bool)) {
	for _, eval := range []bool{false, true} {
		t.Run(fmt.Sprintf("eval=%v", eval), func(t *testing.T) {
			t.Parallel()
			test(t, eval)
		})
	}
}

// The script cache is flushed between any two commands of a batch: each script runs once, and only who lost it waits twice.
func TestScriptsAreLostWithinABatch(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		b, _, server := behindAs(t, pipeline.Options{Eval: eval})
		const scripts = 6
		for k := range scripts + 1 {
			if err := b.Load(t.Context(), count); err != nil {
				t.Fatal(err)
			}
			server.Client().FlushAll(t.Context())
			batch := b.Batch("r")
			var handles []pipeline.Handle[int64]
			for i := range scripts + 1 {
				if i == k {
					pipeline.Declare(batch, "flush", pipeline.Raw, "SCRIPT", "FLUSH")
				}
				if i < scripts {
					handles = append(handles, pipeline.Eval(batch, "o", integer, count, []string{fmt.Sprint("n", i)}))
				}
			}
			for i, h := range handles {
				if n, err := h.Get(t.Context()); err != nil || n != 1 {
					t.Errorf("flush before %d: script %d: %d, %v", k, i, n, err)
				}
				if got := server.Client().Get(t.Context(), fmt.Sprint("n", i)).Val(); got != "1" {
					t.Errorf("flush before %d: script %d ran %s times", k, i, got)
				}
			}
			want := 2
			if eval || k == scripts {
				want = 1
			}
			if batch.Trips() != want {
				t.Errorf("flush before %d: %d trips, want %d", k, batch.Trips(), want)
			}
		}
	})
}

// The same within a flush of deferred writes, wherever the flush ends: each is applied once, in order.
func TestScriptsAreLostWithinAFlush(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		b, _, server := behindAs(t, pipeline.Options{Eval: eval})
		const writes = 6
		for _, size := range []int{1, 2, 3, 100} {
			d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxFlush: size})
			var want []string
			for k := range writes + 1 {
				w := d.Writes()
				for i := range writes + 1 {
					if i == k {
						w.Do("flush", "SCRIPT", "FLUSH")
					}
					if i < writes {
						id := fmt.Sprintf("%d.%d.%d", size, k, i)
						want = append(want, id)
						w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, id)
					}
				}
				w.Close()
			}
			drain(t, d)
			if diff := cmp.Diff(want, server.Client().LRange(t.Context(), "list", 0, -1).Val()); diff != "" {
				t.Errorf("%d commands a flush (-want +got):\n%s", size, diff)
			}
			server.Client().Del(t.Context(), "list")
		}
	})
}

// Another process brings the script back in the midst of the same flush: what was lost before that is not overtaken by what
// follows.
func TestScriptsComeBackWithinAFlush(t *testing.T) {
	t.Parallel()
	b, _, server := behindAs(t, pipeline.Options{})
	const writes = 5
	for lost := range writes {
		for back := lost + 1; back < writes; back++ {
			if err := b.Load(t.Context(), onceAppends); err != nil {
				t.Fatal(err)
			}
			d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
			w := d.Writes()
			for i := range writes {
				switch i {
				case lost:
					w.Do("flush", "SCRIPT", "FLUSH")
				case back:
					w.Do("load", "SCRIPT", "LOAD", onceAppends.Source())
				}
				w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, i)
			}
			w.Close()
			drain(t, d)
			wantList(t, server.Client(), writes)
			server.Client().Del(t.Context(), "list")
		}
	}
}

// The script cache is flushed when the k-th command of all passes, on its way to the server, for every k.
func TestScriptsAreLostBetweenFlushes(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		b, proxy, server := behindAs(t, pipeline.Options{Eval: eval})
		const writes = 8
		for k := 1; k <= writes; k++ {
			d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxFlush: 2})
			var passed, flushed atomic.Int64
			proxy.CutAfter(func(cmd []string) bool {
				if strings.HasPrefix(strings.ToLower(cmd[0]), "eval") && passed.Add(1) == int64(k) {
					flushed.Add(1)
					server.Client().ScriptFlush(context.Background())
				}
				return false
			})
			w := d.Writes()
			var want []string
			for i := range writes {
				want = append(want, fmt.Sprint(i))
				w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, i)
			}
			w.Close()
			drain(t, d)
			if got := server.Client().LRange(t.Context(), "list", 0, -1).Val(); !slices.Equal(got, want) || flushed.Load() != 1 {
				t.Errorf("k = %d: %v after %d flushes of the cache", k, got, flushed.Load())
			}
			server.Client().Del(t.Context(), "list")
		}
	})
}

// Writes that are numbered in several places share a lane on one server: they leave together all the same.
func TestNumbersOfSeveralPlacesShareAFlush(t *testing.T) {
	t.Parallel()
	b, proxy, server := behindAs(t, pipeline.Options{})
	if err := b.Load(t.Context(), onceAppends); err != nil {
		t.Fatal(err)
	}
	proxy.Reset()
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	w := d.Writes()
	const writes = 100
	for i := range writes {
		w.Once("test", onceAppends, []string{fmt.Sprintf("{%d}:w:%s", i%3, w.Writer()), "list"}, i)
	}
	w.Close()
	drain(t, d)
	proxy.WaitQuiet(20 * time.Millisecond)
	if trips := proxy.Trips(); len(trips) != 1 {
		t.Errorf("%d writes took %d trips, want 1", writes, len(trips))
	}
	for i, id := range server.Client().LRange(t.Context(), "list", 0, -1).Val() {
		if id != fmt.Sprint(i) {
			t.Fatalf("%s came in place of %d", id, i)
		}
	}
}

// A digest that nobody has the script of is its caller's own fault, and no more than that.
func TestUnknownDigests(t *testing.T) {
	t.Parallel()
	b, _, _ := behindAs(t, pipeline.Options{})
	const digest = "0000000000000000000000000000000000000000"
	_, err := pipeline.Declare(b.Batch("r"), "o", pipeline.Raw, "EVALSHA", digest, 0).Get(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT ") {
		t.Errorf("err = %v", err)
	}
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	w := d.Writes()
	w.Do("test", "EVALSHA", digest, 0)
	w.Close()
	drain(t, d)
	if s := d.Stats(); s.Refused != 1 || s.Pending != 0 {
		t.Errorf("stats = %+v, want 1 refused", s)
	}
}
