package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// How a subscription is watched. Nothing arrives on it for hours, so only pings tell a quiet connection from a dead one:
// two without an answer, and it is lost, less than a second after it went silent.
const (
	pingEvery  = 300 * time.Millisecond
	pingMissed = 2
	// subscribeTimeout bounds the making of a connection.
	subscribeTimeout = time.Second
)

// errSilent ends a subscription whose pings are not answered.
var errSilent = errors.New("pings are not answered")

// Subscribe receives the messages of a channel on a connection of its own until ctx ends. It makes the connection again
// whenever that is lost, after a pause that grows from 10 ms to 1 s; messages sent meanwhile are missed. state is told
// true when the channel is subscribed to and false when the connection is lost, each time; it starts as lost. on and
// state are called by one goroutine at a time and must not block.
//
// On a cluster any node will do: nodes pass messages on to each other.
func (b *Backend) Subscribe(ctx context.Context, channel string, on func(payload string), state func(up bool)) {
	pause := firstPause
	for n := 0; ctx.Err() == nil; n++ {
		client := b.subscriber(ctx, n)
		if client == nil {
			rest(ctx, &pause)
			continue
		}
		s := subscription{ps: client.Subscribe(ctx), got: make(chan any), left: make(chan struct{})}
		if s.open(ctx, channel) == nil {
			pause = firstPause
			state(true)
			s.follow(ctx, on)
			state(false)
		}
		s.close()
		rest(ctx, &pause)
	}
}

// subscriber is the n-th choice of whom to subscribe at; nil when no server of the cluster is known.
func (b *Backend) subscriber(ctx context.Context, n int) *redis.Client {
	list := b.nodes(ctx)
	if len(list) == 0 {
		return nil
	}
	return list[n%len(list)].client.Load()
}

// rest waits for a pause, and doubles it.
func rest(ctx context.Context, pause *time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(*pause):
	}
	*pause = min(2**pause, lastPause)
}

// subscription is one connection of a subscriber.
type subscription struct {
	ps   *redis.PubSub
	got  chan any      // what arrives; closed by the reader at its end
	left chan struct{} // closed when nobody takes from got any more
}

// open subscribes and waits until the server has said so.
func (s *subscription) open(ctx context.Context, channel string) error {
	wait, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	if err := s.ps.Subscribe(wait, channel); err != nil {
		close(s.got)
		return err
	}
	go s.read(ctx)
	select {
	case m, ok := <-s.got:
		if _, confirmed := m.(*redis.Subscription); ok && confirmed {
			return nil
		}
		return errSilent
	case <-wait.Done():
		return wait.Err()
	}
}

// read hands on what arrives until the connection fails or is closed.
func (s *subscription) read(ctx context.Context) {
	defer close(s.got)
	for {
		m, err := s.ps.Receive(ctx)
		if err != nil {
			return
		}
		select {
		case s.got <- m:
		case <-s.left:
			return
		}
	}
}

// follow hands messages on until the connection is lost or ctx ends. Whatever arrives is a sign of life.
func (s *subscription) follow(ctx context.Context, on func(string)) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	missed := 0
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-s.got:
			if !ok {
				return
			}
			missed = 0
			if message, is := m.(*redis.Message); is {
				on(message.Payload)
			}
		case <-tick.C:
			if missed == pingMissed || s.ping(ctx) != nil {
				return
			}
			missed++
		}
	}
}

func (s *subscription) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	return s.ps.Ping(ctx)
}

// close ends the connection and waits for the reader.
func (s *subscription) close() {
	close(s.left)
	_ = s.ps.Close() // it fails only for what is closed already
	for range s.got {
	}
}
