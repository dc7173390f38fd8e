package pipeline_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// listener is a subscription under test.
type listener struct {
	*testing.T
	mu   sync.Mutex
	got  []string
	ups  []bool
	end  context.CancelFunc
	done chan struct{}
}

func listen(t *testing.T, b *pipeline.Backend) *listener {
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{T: t, end: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		b.Subscribe(ctx, "news", func(m string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.got = append(l.got, m)
		}, func(up bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.ups = append(l.ups, up)
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-l.done
	})
	return l
}

// until waits for the states to be these, one after the other.
func (l *listener) until(states ...bool) {
	l.Helper()
	l.wait(func() bool { return slices.Equal(l.ups, states) }, "states", states)
}

func (l *listener) hears(messages ...string) {
	l.Helper()
	l.wait(func() bool { return slices.Equal(l.got, messages) }, "messages", messages)
}

func (l *listener) wait(is func() bool, what string, want any) {
	l.Helper()
	for range 3000 {
		l.mu.Lock()
		ok := is()
		l.mu.Unlock()
		if ok {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Fatalf("%s: want %v; messages %q, states %v", what, want, l.got, l.ups)
}

func publish(t *testing.T, b *pipeline.Backend, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if _, err := pipeline.Declare(b.Batch("test"), "test", pipeline.Raw, "PUBLISH", "news", m).Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, b *pipeline.Backend) {
		t.Cleanup(func() { _ = b.Close() })
		l := listen(t, b)
		l.until(true)
		publish(t, b, "a", "", "b c")
		l.hears("a", "", "b c")
		// Long enough for several pings: their answers are no messages, and the connection stays.
		time.Sleep(1500 * time.Millisecond)
		publish(t, b, "d")
		l.hears("a", "", "b c", "d")
		l.end()
		<-l.done
		l.until(true, false)
	}
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		b, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		test(t, b)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		b, err := pipeline.Open(pipeline.Options{URL: redistest.Start(t).URL(), Deadline: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		test(t, b)
	})
}

// TestSubscriptionIsLostAndComesBack in all the ways in which a connection ends.
func TestSubscriptionIsLostAndComesBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		lose, mend func(*redistest.Server, *redistest.Proxy)
	}{
		{"closed by the server", func(s *redistest.Server, _ *redistest.Proxy) {
			s.Client().ClientKillByFilter(context.Background(), "TYPE", "pubsub")
		}, func(*redistest.Server, *redistest.Proxy) {}},
		{"silent", func(_ *redistest.Server, p *redistest.Proxy) { p.Stall(true) },
			func(_ *redistest.Server, p *redistest.Proxy) { p.Stall(false) }},
		{"a server that hangs", func(s *redistest.Server, _ *redistest.Proxy) { s.Pause() },
			func(s *redistest.Server, _ *redistest.Proxy) { s.Resume() }},
		{"a server that restarts", func(s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
			func(s *redistest.Server, _ *redistest.Proxy) { s.Restart() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			b, err := pipeline.Open(pipeline.Options{URL: proxy.URL(), Deadline: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			l := listen(t, b)
			l.until(true)
			publish(t, b, "before")
			l.hears("before")
			tt.lose(server, proxy)
			l.wait(func() bool { return len(l.ups) > 1 && !l.ups[1] }, "states", "lost")
			tt.mend(server, proxy)
			l.until(true, false, true)
			publish(t, b, "after")
			l.hears("before", "after")
		})
	}
}

// TestSubscribeToNobody: a server that is not there is tried again until the context ends.
func TestSubscribeToNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	b, err := pipeline.Open(pipeline.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	l := listen(t, b)
	server.Restart()
	l.until(true)
	l.end()
	<-l.done
}
