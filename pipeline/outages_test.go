package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// queueOnces declares the numbers up to n for the list of applied writes.
func queueOnces(d *pipeline.Deferred, n int) {
	w := d.Writes()
	for i := range n {
		w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, i)
	}
	w.Close()
}

// Another client's script runs on and on: requests are told so as soon as the server says it, and before that wait no
// longer than their deadline; deferred writes wait for its end.
func TestServerThatIsBusy(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		b, _, server := behindAs(t, pipeline.Options{Eval: eval, Deadline: 5 * time.Second})
		hasty := backend(t, server.URL()) // its deadline passes before the server says anything
		plain := server.Client()
		plain.ConfigSet(t.Context(), "busy-reply-threshold", "400")
		other := make(chan error, 1)
		go func() { other <- plain.Eval(context.Background(), `while true do end`, nil).Err() }()
		d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxFlush: 3})
		late := func() error {
			_, err := pipeline.Eval(hasty.Batch("r"), "o", integer, count, []string{"hasty"}).Get(t.Context())
			return err
		}
		eventually(t, "the other's script", func() bool { return late() != nil })
		var busy error
		eventually(t, "BUSY", func() bool {
			_, busy = pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context())
			return busy != nil
		})
		if !strings.HasPrefix(busy.Error(), "BUSY ") {
			t.Errorf("a request gets %v", busy)
		}
		const writes = 10
		queueOnces(d, writes)
		time.Sleep(50 * time.Millisecond)
		if s := d.Stats(); s.Pending != writes || s.Refused != 0 || s.Lost != 0 {
			t.Errorf("while it is busy: %+v, want %d pending", s, writes)
		}
		eventually(t, "SCRIPT KILL", func() bool { return server.Client().ScriptKill(t.Context()).Err() == nil })
		if err := <-other; err == nil {
			t.Error("the other's script has no error")
		}
		drain(t, d)
		wantList(t, plain, writes)
		before := plain.Get(t.Context(), "n").Val()
		n, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context())
		if err != nil || before != "" && fmt.Sprint(n-1) != before {
			t.Errorf("afterwards: %d, %v; it was %q", n, err, before)
		}
	})
}

// The data set is being read: no command runs, requests are told so, deferred writes wait.
func TestServerThatIsLoading(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		server := redistest.Start(t, "--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024")
		plain := server.Client()
		pipe := plain.Pipeline()
		for i := range 3000 {
			pipe.Set(t.Context(), fmt.Sprint("k", i), strings.Repeat("v", 20), 0)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 5 * time.Second, Eval: eval})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxFlush: 3})
		plain.ConfigSet(t.Context(), "key-load-delay", "1000")
		other := make(chan error, 1)
		go func() { other <- plain.Do(context.Background(), "DEBUG", "RELOAD").Err() }()
		eventually(t, "LOADING", func() bool {
			_, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context())
			if err == nil {
				return false
			}
			if !strings.HasPrefix(err.Error(), "LOADING ") {
				t.Errorf("a request gets %v", err)
			}
			return true
		})
		const writes = 10
		queueOnces(d, writes)
		time.Sleep(50 * time.Millisecond)
		if s := d.Stats(); s.Pending != writes || s.Refused != 0 || s.Lost != 0 {
			t.Errorf("while it loads: %+v, want %d pending", s, writes)
		}
		_ = plain.ConfigSet(t.Context(), "key-load-delay", "0") // it may be over already
		if err := <-other; err != nil {
			t.Fatal(err)
		}
		drain(t, d)
		wantList(t, plain, writes)
		if _, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A live server becomes a replica: its connections are dropped, for the address may lead to the master by now. It becomes
// master again, and all works.
func TestServerThatIsDemoted(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		b, proxy, server := behindAs(t, pipeline.Options{Eval: eval})
		plain := server.Client()
		ask := func() error {
			_, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context())
			return err
		}
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		before := addresses(t, server)
		nobody, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and is no Redis
		if err != nil {
			t.Fatal(err)
		}
		defer nobody.Close()
		host, port, err := net.SplitHostPort(nobody.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := plain.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
			t.Fatal(err)
		}
		if err := ask(); err == nil || !strings.HasPrefix(err.Error(), "READONLY ") || errors.Is(err, pipeline.ErrUnavailable) {
			t.Errorf("a request at a replica gets %v", err)
		}
		d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxFlush: 3})
		const writes = 10
		queueOnces(d, writes)
		eventually(t, "other connections", func() bool {
			_ = ask()
			now := addresses(t, server)
			maps.DeleteFunc(now, func(a string, _ bool) bool { return before[a] })
			return len(now) > 0
		})
		if n := proxy.Connections(); n > 30 {
			t.Errorf("%d connections", n)
		}
		if s := d.Stats(); s.Pending != writes || s.Lost != 0 || s.Refused != 0 {
			t.Errorf("at a replica: %+v, want %d pending", s, writes)
		}
		if err := plain.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		if err := ask(); err != nil {
			t.Errorf("a request at the master again gets %v", err)
		}
		drain(t, d)
		wantList(t, plain, writes)
		if got := plain.Get(t.Context(), "n").Val(); got != "2" {
			t.Errorf("n = %s, want the two requests that a master answered", got)
		}
	})
}

// addresses are those of the server's clients.
func addresses(t *testing.T, s *redistest.Server) map[string]bool {
	t.Helper()
	list, err := s.Client().ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		if a, ok := strings.CutPrefix(word, "addr="); ok {
			all[a] = true
		}
	}
	return all
}

// The memory is full and nothing is evicted: what needs memory is refused unexecuted, after one more try, and what frees
// some is applied.
func TestServerThatIsFull(t *testing.T) {
	t.Parallel()
	frees := pipeline.NewOnce("frees", "#!lua flags=allow-oom\nreturn redis.call('RPUSH', KEYS[2], ARGV[3])")
	bothModes(t, func(t *testing.T, eval bool) {
		b, proxy, server := behindAs(t, pipeline.Options{Eval: eval})
		plain := server.Client()
		if err := b.Load(t.Context(), count, frees, onceAppends); err != nil {
			t.Fatal(err)
		}
		plain.ConfigSet(t.Context(), "maxmemory", "1")
		proxy.Reset()
		batch := b.Batch("r")
		refused := pipeline.Eval(batch, "o", integer, count, []string{"n"})
		read := pipeline.Declare(batch, "o", pipeline.Bytes, "GET", "n") // needs none
		if _, err := refused.Get(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "OOM ") {
			t.Errorf("a request gets %v", err)
		}
		if _, err := read.Get(t.Context()); !errors.Is(err, pipeline.ErrNil) {
			t.Errorf("its neighbour gets %v", err)
		}
		proxy.WaitQuiet(20 * time.Millisecond)
		trips := proxy.Trips()
		if len(trips) != 2 || len(trips[0].Commands) != 2 || len(trips[1].Commands) != 1 || batch.Trips() != 2 {
			t.Errorf("trips = %+v, want one more try of the script alone", trips)
		}
		d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
		w := d.Writes()
		const writes = 5
		for i := range writes {
			w.Once("test", frees, []string{"w:" + w.Writer(), "list"}, i)
		}
		w.Close()
		eventually(t, "settlements", func() bool { return d.Stats().Pending == 0 })
		wantList(t, plain, writes)
		// One that needs memory waits, and with it what is numbered behind it.
		w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, writes)
		w.Once("test", frees, []string{"w:" + w.Writer(), "list"}, writes+1)
		w.Close()
		time.Sleep(50 * time.Millisecond)
		if s := d.Stats(); s.Pending != 2 || s.Refused != 0 || s.Lost != 0 {
			t.Errorf("while it is full: %+v, want 2 pending", s)
		}
		plain.ConfigSet(t.Context(), "maxmemory", "0")
		drain(t, d)
		wantList(t, plain, writes+2)
		if n, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context()); err != nil || n != 1 {
			t.Errorf("afterwards: %d, %v", n, err)
		}
	})
}
