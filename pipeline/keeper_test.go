package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/journal"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

func openJournal(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(journal.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func files(t *testing.T, dir string) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func sum(t *testing.T, s *redistest.Server, key string) string {
	t.Helper()
	v, err := s.Client().Get(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// short ends at once: what is not answered by then is for the journal.
func short(t *testing.T, d *pipeline.Deferred) (left, lost int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	return d.Drain(ctx)
}

func backend(t *testing.T, url string) *pipeline.Backend {
	t.Helper()
	b, err := pipeline.Open(pipeline.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// While all is well the disk sees nothing, and the end leaves no file behind.
func TestJournalIsIdleWhileRedisAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	j := openJournal(t, dir)
	d := pipeline.NewDeferred(backend(t, server.URL()), pipeline.DeferredOptions{Journal: j, JournalAfter: 5 * time.Second})
	for range 100 {
		add(d, 1)
	}
	drain(t, d)
	if n := j.Stats().Entries; n != 0 {
		t.Errorf("%d entries were written", n)
	}
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files are left", n)
	}
	if got := sum(t, server, "sum"); got != "100" {
		t.Errorf("sum = %s", got)
	}
}

// Redis is away, the process ends, another one starts: everything is applied once.
func TestJournalSurvivesARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	dir := t.TempDir()
	want := 0
	for round := range 5 {
		d := pipeline.NewDeferred(backend(t, server.URL()), pipeline.DeferredOptions{
			Journal: openJournal(t, dir), JournalAfter: 20 * time.Millisecond, MaxFlush: 7,
		})
		add(d, 1) // answered, most of the time
		want++
		time.Sleep(20 * time.Millisecond)
		server.Kill()
		for i := range 50 {
			add(d, i)
			want += i
		}
		if round%2 == 0 {
			time.Sleep(60 * time.Millisecond)
		}
		if left, lost := short(t, d); left < 50 || lost != 0 {
			t.Fatalf("round %d: %d left, %d lost; want 50 or more, all of them in the journal", round, left, lost)
		}
		server.Restart()
	}
	d := pipeline.NewDeferred(backend(t, server.URL()), pipeline.DeferredOptions{Journal: openJournal(t, dir)})
	drain(t, d)
	if got := sum(t, server, "sum"); got != fmt.Sprint(want) {
		t.Errorf("sum = %s, want %d", got, want)
	}
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// What finds no room in memory lives on disk, in order, and comes back.
func TestJournalTakesWhatMemoryDoesNot(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Refuse(true)
	dir := t.TempDir()
	j := openJournal(t, dir)
	d := pipeline.NewDeferred(backend(t, proxy.URL()), pipeline.DeferredOptions{
		Journal: j, JournalAfter: 10 * time.Millisecond, MaxPending: 100, MaxFlush: 10,
	})
	appendOne := pipeline.NewOnce("append", `return redis.call('RPUSH', KEYS[2], ARGV[3])`)
	const writes = 5000
	for i := range writes {
		w := d.Writes()
		w.Once("test", appendOne, []string{"w:" + w.Writer(), "list"}, i)
		w.Close()
		if i%1000 == 999 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if s := d.Stats(); s.Pending != writes || s.Lost != 0 {
		t.Errorf("%d pending, %d lost; want %d and 0", s.Pending, s.Lost, writes)
	}
	proxy.Refuse(false)
	drain(t, d)
	list := server.Client().LRange(t.Context(), "list", 0, -1).Val()
	if len(list) != writes {
		t.Fatalf("%d of %d writes were applied", len(list), writes)
	}
	for i, v := range list {
		if v != fmt.Sprint(i) {
			t.Fatalf("write %d came in place of %d", i, i)
		}
	}
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// Replies are lost after execution, a thousand times, scripts are lost between commands, processes end with writes
// unanswered and others go on from their journals, two flushes are under way at the same time: every counter is exact.
func TestBooksAreExactAfterLostReplies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	dir := t.TempDir()
	const want, counters = 1000, 8
	var cuts atomic.Int64
	var armed atomic.Bool
	arm := func() {
		if !armed.CompareAndSwap(false, true) {
			return
		}
		proxy.CutAfter(func(cmd []string) bool {
			if !strings.HasPrefix(strings.ToLower(cmd[0]), "eval") || rand.IntN(4) > 0 {
				return false
			}
			cuts.Add(1)
			armed.Store(false)
			return true
		})
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
				server.Client().ScriptFlush(context.Background())
			}
		}
	})
	var expected [counters]int
	b := backend(t, proxy.URL())
	open := func() *pipeline.Deferred {
		return pipeline.NewDeferred(b, pipeline.DeferredOptions{
			Journal: openJournal(t, dir), JournalAfter: 4 * time.Millisecond, MaxFlush: 9, MaxPending: 300, Workers: 2,
		})
	}
	d := open()
	deadline := time.Now().Add(2 * time.Minute)
	for n := 0; cuts.Load() < want && time.Now().Before(deadline); n++ {
		arm()
		for range 4 {
			c, amount := rand.IntN(counters), 1+rand.IntN(100)
			w := d.Writes()
			tag := fmt.Sprintf("{c%d}", c)
			w.Once("test", once, []string{tag + ":w:" + w.Writer(), tag + ":sum"}, amount)
			w.Close()
			expected[c] += amount
		}
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
		if n%400 == 399 {
			if _, lost := short(t, d); lost != 0 {
				t.Fatalf("%d writes lost at a restart", lost)
			}
			d = open()
		}
	}
	close(stop)
	wg.Wait()
	drain(t, d)
	if n := cuts.Load(); n < want {
		t.Errorf("only %d replies were lost within the time", n)
	}
	for c, v := range expected {
		if got := sum(t, server, fmt.Sprintf("{c%d}:sum", c)); got != fmt.Sprint(v) {
			t.Errorf("counter %d = %s, want %d", c, got, v)
		}
	}
	if n := files(t, dir); n != 0 {
		list, _ := os.ReadDir(dir)
		t.Errorf("%d files are left: %v", n, list)
	}
}
