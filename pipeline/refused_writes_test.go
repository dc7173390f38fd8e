package pipeline_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// A key of the wrong type: where the number is kept it is replaced, and each write is applied once all the same; where the
// data is, the write that meets it is refused and counted, and those behind it are applied.
func TestKeysOfTheWrongType(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		b, _, server := behindAs(t, pipeline.Options{Eval: eval})
		plain := server.Client()
		for _, size := range []int{1, 2, 100} {
			plain.FlushAll(t.Context())
			d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxFlush: size})
			number := "w:" + d.Writer()
			plain.HSet(t.Context(), number, "f", "v")
			plain.Set(t.Context(), "text", "words", 0)
			w := d.Writes()
			const writes = 6
			for i := range writes {
				w.Once("test", onceAppends, []string{number, "list"}, i)
				w.Once("bad", onceAppends, []string{number, "text"}, i)
				w.Do("nil", "GET", "missing")
				w.Do("bad", "HGETALL", "text")
			}
			w.Close()
			drain(t, d)
			wantList(t, plain, writes)
			if s := d.Stats(); s.Refused != 2*writes || s.Lost != 0 || s.Dropped != 0 {
				t.Errorf("%d commands a flush: %+v, want %d refused", size, s, 2*writes)
			}
			if got := plain.Get(t.Context(), number).Val(); got != fmt.Sprint(2*writes) {
				t.Errorf("the last number is %q, want %d", got, 2*writes)
			}
		}
	})
}

// A number that Redis lost with everything else, while a repetition is under way, is no reason to stop.
func TestNumberThatIsGone(t *testing.T) {
	t.Parallel()
	b, _, server := behindAs(t, pipeline.Options{})
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxFlush: 2})
	queueOnces(d, 5)
	eventually(t, "the first five", func() bool { return d.Pending() == 0 })
	server.Client().FlushAll(t.Context())
	queueOnces(d, 5)
	drain(t, d)
	wantList(t, server.Client(), 5)
}

// A value beyond what Redis takes costs nobody anything: it is refused before it is sent, and its neighbours in the same
// trip, and of other callers, do not notice.
func TestValuesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		b, proxy, server := behindAs(t, pipeline.Options{Eval: eval})
		huge := make([]byte, 512<<20+1) // never touched: it takes no memory
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				batch := b.Batch("r")
				first := pipeline.Declare(batch, "o", integer, "INCR", fmt.Sprint("a", i))
				bad := pipeline.Declare(batch, "o", pipeline.Raw, "SET", "huge", huge)
				worse := pipeline.Eval(batch, "o", integer, count, []string{"huge"}, huge)
				last := pipeline.Eval(batch, "o", integer, count, []string{fmt.Sprint("b", i)})
				if _, err := bad.Get(t.Context()); !errors.Is(err, pipeline.ErrTooLarge) || errors.Is(err, pipeline.ErrUnavailable) {
					t.Errorf("the large value: %v", err)
				}
				if _, err := worse.Get(t.Context()); !errors.Is(err, pipeline.ErrTooLarge) {
					t.Errorf("the large argument: %v", err)
				}
				if n, err := first.Get(t.Context()); err != nil || n != 1 {
					t.Errorf("before it: %d, %v", n, err)
				}
				if n, err := last.Get(t.Context()); err != nil || n != 1 {
					t.Errorf("behind it: %d, %v", n, err)
				}
			})
		}
		wg.Wait()
		d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
		w := d.Writes()
		w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, 0)
		w.Once("huge", onceAppends, []string{"w:" + w.Writer(), "huge"}, huge)
		w.Do("huge", "SET", "huge", huge)
		w.Eval("huge", appends, []string{"huge"}, huge)
		w.Once("no form", onceAppends, []string{"w:" + w.Writer(), "huge"}, time.Second)
		w.Do("no form", "SET", "huge", struct{}{})
		w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, 1)
		w.Close()
		drain(t, d)
		wantList(t, server.Client(), 2)
		if s := d.Stats(); s.Lost != 2 || s.Dropped != 3 || s.Refused != 0 {
			t.Errorf("stats = %+v, want 2 lost and 3 dropped", s)
		}
		if server.Client().Exists(t.Context(), "huge").Val() != 0 {
			t.Error("something was written")
		}
		proxy.WaitQuiet(20 * time.Millisecond)
		for _, trip := range proxy.Trips() {
			if trip.Bytes > 1<<20 {
				t.Errorf("a trip of %d bytes", trip.Bytes)
			}
		}
	})
}

// A write that the journal cannot hold must not keep the others from it.
func TestWriteThatIsTooLargeForTheJournal(t *testing.T) {
	t.Parallel()
	b, proxy, server := behindAs(t, pipeline.Options{})
	proxy.Refuse(true)
	dir := t.TempDir()
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{Journal: openJournal(t, dir)})
	w := d.Writes()
	w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, 0)
	w.Once("large", onceAppends, []string{"w:" + w.Writer(), "list"}, strings.Repeat("x", 17<<20))
	w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, 1)
	w.Close()
	if left, lost := short(t, d); left != 2 || lost != 0 || d.Stats().Lost != 1 {
		t.Errorf("%d left, %d lost, %d before; want 2, 0 and 1", left, lost, d.Stats().Lost)
	}
	proxy.Refuse(false)
	d = pipeline.NewDeferred(b, pipeline.DeferredOptions{Journal: openJournal(t, dir)})
	drain(t, d)
	wantList(t, server.Client(), 2)
}

// What comes after the end is reported: nobody will send it.
func TestWritesAfterDrain(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		b, _, server := behindAs(t, pipeline.Options{})
		opt := pipeline.DeferredOptions{}
		if kept {
			opt.Journal = openJournal(t, t.TempDir())
		}
		d := pipeline.NewDeferred(b, opt)
		drain(t, d)
		queueOnces(d, 3)
		w := d.Writes()
		w.Do("copy", "SET", "x", "1")
		w.Close()
		if s := d.Stats(); s.Lost != 3 || s.Dropped != 1 || s.Pending != 0 {
			t.Errorf("journal %v: %+v, want 3 lost and 1 dropped", kept, s)
		}
		if n := server.Client().DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("journal %v: %d keys", kept, n)
		}
	}
}
