package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// count is a script whose executions can be counted.
var count = pipeline.NewScript("count", `return redis.call('INCR', KEYS[1])`)

func integer(v any) (int64, error) {
	n, ok := v.(int64)
	if !ok {
		return 0, errors.New("reply is no integer")
	}
	return n, nil
}

// behind opens a backend behind a counting proxy, on a connection that is already warm.
func behind(t *testing.T) (*pipeline.Backend, *redistest.Proxy, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b, err := pipeline.Open(pipeline.Options{URL: proxy.URL(), Deadline: 5 * time.Second, PoolSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.WaitQuiet(20 * time.Millisecond)
	proxy.Reset()
	return b, proxy, server
}

func is(name string) func([]string) bool {
	return func(cmd []string) bool { return strings.EqualFold(cmd[0], name) }
}

func TestDeclaringDoesNoIO(t *testing.T) {
	t.Parallel()
	b, proxy, server := behind(t)
	batch := b.Batch("r1")
	set := pipeline.Declare(batch, "a", pipeline.Raw, "SET", "x", "1")
	get := pipeline.Declare(batch, "b", pipeline.Bytes, "GET", "x")
	time.Sleep(20 * time.Millisecond)
	if n := len(proxy.Trips()); n != 0 {
		t.Fatalf("%d trips before the first Get", n)
	}
	v, err := get.Get(t.Context())
	if err != nil || string(v) != "1" {
		t.Fatalf("get = %q, %v", v, err)
	}
	if _, err := set.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.WaitQuiet(20 * time.Millisecond)
	if n := len(proxy.Trips()); n != 1 || batch.Trips() != 1 {
		t.Errorf("%d trips on the wire, %d by the batch, want 1", n, batch.Trips())
	}
	if got := server.Client().Get(t.Context(), "x").Val(); got != "1" {
		t.Errorf("x = %q", got)
	}
}

func TestEachReplyIsJudgedAlone(t *testing.T) {
	t.Parallel()
	b, proxy, server := behind(t)
	server.Client().Set(t.Context(), "text", "x", 0)
	batch := b.Batch("r1")
	missing := pipeline.Declare(batch, "a", pipeline.Bytes, "GET", "nothing") // its nil would be the pipeline's first error
	wrong := pipeline.Declare(batch, "b", pipeline.Raw, "HGETALL", "text")
	script := pipeline.Eval(batch, "c", integer, count, []string{"n"}) // not in the server's cache
	fine := pipeline.Declare(batch, "d", pipeline.Bytes, "GET", "text")
	if _, err := missing.Get(t.Context()); !errors.Is(err, pipeline.ErrNil) {
		t.Errorf("missing: %v", err)
	}
	if _, err := wrong.Get(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("wrong: %v", err)
	}
	if n, err := script.Get(t.Context()); err != nil || n != 1 {
		t.Errorf("script: %d, %v", n, err)
	}
	if v, err := fine.Get(t.Context()); err != nil || string(v) != "x" {
		t.Errorf("fine: %q, %v", v, err)
	}
	proxy.WaitQuiet(20 * time.Millisecond)
	trips := proxy.Trips()
	if len(trips) != 2 || len(trips[1].Commands) != 1 {
		t.Errorf("trips = %+v, want the second one to hold the lost script alone", trips)
	}
}

func TestSentAtMostOnce(t *testing.T) {
	t.Parallel()
	b, proxy, server := behind(t)
	if err := b.Load(t.Context(), count); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		server.Client().Del(t.Context(), "n")
		proxy.CutAfter(is("evalsha"))
		_, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context())
		if !errors.Is(err, pipeline.ErrUnavailable) {
			t.Fatalf("a lost reply gave %v", err)
		}
		if n := server.Client().Get(t.Context(), "n").Val(); n != "1" {
			t.Fatalf("executed %s times, want 1", n)
		}
		if err := b.Ping(t.Context()); err != nil { // the breaker counts only what requests see
			t.Fatal(err)
		}
		if n, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context()); err != nil || n != 2 {
			t.Fatalf("the next request: %d, %v", n, err)
		}
	}
}

// The first command on a connection is sent once too. A proxy that accepts and hangs up has sent nothing on: that is tried
// once more, and a deferred write waits for it.
func TestFreshConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	for range 10 {
		server.Client().Del(t.Context(), "n")
		b, err := pipeline.Open(pipeline.Options{URL: proxy.URL(), Deadline: 5 * time.Second, Eval: true})
		if err != nil {
			t.Fatal(err)
		}
		proxy.CutAfter(is("eval"))
		_, err = pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context())
		if !errors.Is(err, pipeline.ErrUnavailable) {
			t.Errorf("a lost reply gave %v", err)
		}
		if n := server.Client().Get(t.Context(), "n").Val(); n != "1" {
			t.Fatalf("executed %s times, want 1", n)
		}
		_ = b.Close()
	}
	b, err := pipeline.Open(pipeline.Options{URL: proxy.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	proxy.Refuse(true)
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	w := d.Writes()
	w.Do("copy", "SET", "copy", "x")
	w.Close()
	time.Sleep(50 * time.Millisecond) // it is tried
	proxy.Refuse(false)
	drain(t, d)
	if s := d.Stats(); s.Dropped != 0 || server.Client().Get(t.Context(), "copy").Val() != "x" {
		t.Errorf("a write that never left was dropped: %+v", s)
	}
}

func TestRefusedConnectionIsTriedOnceMore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	server.Kill()
	begin := time.Now()
	_, err = pipeline.Declare(b.Batch("r"), "o", pipeline.Bytes, "GET", "x").Get(t.Context())
	if !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("err = %v", err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %s with a deadline of 500ms", took)
	}
}

func TestDeadlineAndBreaker(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	ask := func() (time.Duration, error) {
		begin := time.Now()
		_, err := pipeline.Declare(b.Batch("r"), "o", pipeline.Raw, "SET", "x", "1").Get(t.Context())
		return time.Since(begin), err
	}
	if _, err := ask(); err != nil {
		t.Fatal(err)
	}
	server.Pause() // accepts and never answers
	for range 3 {
		if _, err := ask(); !errors.Is(err, pipeline.ErrUnavailable) {
			t.Fatalf("err = %v", err)
		}
	}
	if b.Answering() {
		t.Error("the breaker is closed after three requests without an answer")
	}
	waited := time.Duration(0) // a machine that stalls lets a probe or two through
	for range 20 {
		took, err := ask()
		if err == nil {
			t.Error("a stopped server answered")
		}
		waited += took
	}
	if waited > 500*time.Millisecond {
		t.Errorf("behind the breaker 20 requests waited %s; each on its own would take 50ms", waited)
	}
	server.Resume()
	for range 100 {
		if _, err := ask(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("the breaker did not close again")
}

func TestGoneCallerStillLearnsTheOutcome(t *testing.T) {
	t.Parallel()
	b, _, _ := behind(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(ctx); err != nil || n != 1 {
		t.Errorf("get = %d, %v", n, err)
	}
}

func TestEvalSettingSendsWholeScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b, err := pipeline.Open(pipeline.Options{URL: proxy.URL(), Eval: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if n, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context()); err != nil || n != 1 {
		t.Fatalf("get = %d, %v", n, err)
	}
	proxy.WaitQuiet(20 * time.Millisecond)
	for _, trip := range proxy.Trips() {
		for _, cmd := range trip.Commands {
			if !strings.EqualFold(cmd[0], "eval") {
				t.Errorf("sent %q", cmd[0])
			}
		}
	}
}

func TestMemoryPolicyThatEvictsIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	b, err := pipeline.Open(pipeline.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.CheckMemoryPolicy(t.Context()); !errors.Is(err, pipeline.ErrEvicts) {
		t.Errorf("err = %v", err)
	}
}

// The embedded store is a store like any other: scripts, TTLs that move, a bound on its keys.
func TestEmbeddedStore(t *testing.T) {
	t.Parallel()
	b, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{MaxKeys: 50, Evictable: "c:"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	shebang := pipeline.NewScript("shebang", "#!lua flags=allow-oom\nreturn redis.call('INCR', KEYS[1])")
	if n, err := pipeline.Eval(b.Batch("r"), "o", integer, shebang, []string{"n"}).Get(t.Context()); err != nil || n != 1 {
		t.Fatalf("script: %d, %v", n, err)
	}
	batch := b.Batch("r")
	for i := range 60 {
		pipeline.Declare(batch, "o", pipeline.Raw, "SET", "c:"+string(rune('A'+i)), "x")
	}
	last := pipeline.Declare(batch, "o", pipeline.Raw, "SET", "short", "x", "PX", 300)
	if _, err := last.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		left := pipeline.Declare(b.Batch("r"), "o", integer, "DBSIZE")
		if n, err := left.Get(t.Context()); err == nil && n == 1 { // "n" alone: the others were evicted or ran out
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("keys were neither evicted nor expired")
}
