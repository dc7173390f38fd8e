package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// TestNoSecondTryAfterTheDeadline wants a command that was certainly not sent to be sent again while there is time, and to
// keep its error when there is none: without a reply it must not pass for an answered one.
func TestNoSecondTryAfterTheDeadline(t *testing.T) {
	t.Parallel()
	b, err := Open(Options{URL: redistest.Start(t).URL(), Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	unsent := func(until time.Time) *declared {
		d := &declared{owner: "a", backend: b, cmd: redis.NewCmd(context.Background(), "PING")}
		d.cmd.SetErr(fmt.Errorf("%w: %w", errNotWritten, os.ErrDeadlineExceeded))
		s := &share{ctx: t.Context(), backend: b, list: []*declared{d}, done: make(chan struct{}), depth: 1, tries: 1, until: until}
		s.first, d.part = s, s
		s.finish()
		new(core).wait(d)
		return d
	}
	if d := unsent(time.Now().Add(5 * time.Second)); d.err != nil || d.val != "PONG" {
		t.Errorf("in time: %v, %v", d.val, d.err)
	}
	if d := unsent(time.Now()); !errors.Is(d.err, ErrUnavailable) {
		t.Errorf("too late: %v, %v", d.val, d.err)
	}
}

// TestTurnsAreNotLost wants every burst to end, and the places of senders to be all back afterwards: without them
// everybody waits for ever.
func TestTurnsAreNotLost(t *testing.T) {
	t.Parallel()
	b, err := Open(Options{URL: redistest.Start(t).URL(), Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	for round := range 30 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			var wait sync.WaitGroup
			for range 200 {
				wait.Go(func() { _, _ = Declare(b.Batch("r"), "a", Raw, "PING").Get(context.Background()) })
			}
			wait.Wait()
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("round %d does not end", round)
		}
		idle := false
		for range 100 { // a sender gives its place back after its callers have their replies
			m := &b.one.merger
			m.mu.Lock()
			idle = m.senders == 0 && len(m.waiting) == 0
			m.mu.Unlock()
			if idle {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !idle {
			t.Fatalf("after round %d places are taken or callers wait", round)
		}
	}
}
