package pipeline

import (
	"context"
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
	unsent := func() *declared {
		d := &declared{owner: "a", cmd: redis.NewCmd(context.Background(), "GET", "x")}
		d.cmd.SetErr(fmt.Errorf("%w: %w", errNotWritten, os.ErrDeadlineExceeded))
		return d
	}
	b := new(Batch)
	if d := unsent(); len(b.retry([]*declared{d}, true)) != 1 || d.cmd.Err() != nil {
		t.Errorf("in time: no fresh command for the second try, error %v", d.cmd.Err())
	}
	d := unsent()
	if again := b.retry([]*declared{d}, false); len(again) != 0 || d.cmd.Err() == nil {
		t.Errorf("too late: %d commands to send again, error %v", len(again), d.cmd.Err())
	}
}

// TestTurnsAreNotLost wants every burst to end, and the turns to send to be all back afterwards: a turn that is given to
// one caller twice is missing for good, and without turns everybody waits for ever.
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
		b.merger.mu.Lock()
		senders, waiting := b.merger.senders, len(b.merger.waiting)
		b.merger.mu.Unlock()
		if senders != 0 || waiting != 0 {
			t.Fatalf("after round %d %d turns are taken and %d callers wait", round, senders, waiting)
		}
	}
}
