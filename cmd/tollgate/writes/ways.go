package writes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// patience bounds the wait for a server that answers nothing any more.
const patience = 30 * time.Second

// command names the write. A repetition would show: it adds.
const command = "INCRBY"

// keys are those of the users, under a prefix that no other run has.
func keys(count int) []string {
	prefix := "tg-writes-" + uuid.NewString()[:8] + ":"
	list := make([]string, count)
	for user := range list {
		list[user] = prefix + strconv.Itoa(user)
	}
	return list
}

// value is what is written for a user: another for each, so that none can stand for another.
func value(user int) int64 { return int64(user) + 1 }

// client is a connected client behind the proxy.
func (b *bench) client(ctx context.Context) (*redis.Client, error) {
	c := redis.NewClient(&redis.Options{
		Addr: b.proxy.Addr(), Protocol: 2, DisableIdentity: true, PoolSize: 1, MaxRetries: -1,
		ReadTimeout: patience, WriteTimeout: patience,
	})
	if err := c.Ping(ctx).Err(); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// single waits for each write before the next.
func (b *bench) single(ctx context.Context) (time.Duration, error) {
	c, err := b.client(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	begun := b.begin()
	for user, key := range b.keys {
		if err := c.IncrBy(ctx, key, value(user)).Err(); err != nil {
			return 0, err
		}
		b.say(user + 1)
	}
	return time.Since(begun), nil
}

// pipelined sends all writes, then reads all replies.
func (b *bench) pipelined(ctx context.Context) (time.Duration, error) {
	c, err := b.client(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	begun := b.begin()
	p := c.Pipeline()
	for user, key := range b.keys {
		p.IncrBy(ctx, key, value(user))
	}
	_, err = p.Exec(ctx)
	return time.Since(begun), err
}

// deferred writes as requests do: each declares its own and leaves it to the queue.
func (b *bench) deferred(ctx context.Context) (time.Duration, error) {
	backend, err := pipeline.Open(pipeline.Options{URL: b.proxy.URL(), Deadline: 2*time.Second + b.RTT})
	if err != nil {
		return 0, err
	}
	defer func() { _ = backend.Close() }()
	if err := backend.Ping(ctx); err != nil {
		return 0, err
	}
	queue := pipeline.NewDeferred(backend, pipeline.DeferredOptions{MaxPending: b.Count, MaxFlush: b.MaxFlush})
	defer func() { // nothing is left when all went well; else nobody waits for it
		ended, cancel := context.WithCancel(ctx)
		cancel()
		queue.Drain(ended)
	}()
	begun := b.begin()
	for user, key := range b.keys {
		w := queue.Writes()
		w.Do("writes", command, key, value(user))
		w.Close()
	}
	if err := b.empty(ctx, queue); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	if n := queue.Stats().Dropped; n > 0 {
		return 0, fmt.Errorf("%d writes were given up", n)
	}
	return took, nil
}

// empty waits until a queue is.
func (b *bench) empty(ctx context.Context, queue *pipeline.Deferred) error {
	least, at := b.Count+1, time.Now()
	for {
		n := queue.Pending()
		switch {
		case n == 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case n < least:
			least, at = n, time.Now()
		case time.Since(at) > patience:
			return errors.New("the server does not answer")
		}
		b.say(b.Count - n)
		time.Sleep(200 * time.Microsecond)
	}
}
