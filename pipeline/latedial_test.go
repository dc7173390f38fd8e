package pipeline

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestDialUntilTheDeadline wants a batch whose whole time went into a dial to say that Redis is unavailable. There is no
// time left to send the commands again, and commands without a reply must not pass for answered ones.
func TestDialUntilTheDeadline(t *testing.T) {
	t.Parallel()
	b, err := Open(Options{URL: "redis://127.0.0.1:1/0", Deadline: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_ = b.client.Close()
	b.client = redis.NewClient(&redis.Options{
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
		},
	})
	t.Cleanup(func() { _ = b.Close() })
	for range 3 {
		batch := b.Batch("r1")
		v, err := Declare(batch, "a", Raw, "GET", "x").Get(t.Context())
		if !errors.Is(err, ErrUnavailable) {
			t.Fatalf("get = %v, %v, want ErrUnavailable", v, err)
		}
	}
	if b.Answering() {
		t.Error("three trips without an answer did not open the breaker")
	}
}
