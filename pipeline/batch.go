package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Batch is everything one request asks of one Redis before it goes on. Declare commands with [Declare] and [Eval];
// the first Get on any handle sends them all as one pipeline. A handle declared after that leaves with the next Get.
//
// A Batch belongs to one goroutine.
type Batch struct {
	backend *Backend
	caller  string
	kind    Kind
	waiting []*declared // not sent yet
	trips   int
}

// Batch starts the batch of one request. The caller's name shows in traces.
func (b *Backend) Batch(caller string) *Batch {
	return &Batch{backend: b, caller: caller, kind: KindRequest}
}

// Upkeep starts a batch that no request waits for.
func (b *Backend) Upkeep(caller string) *Batch {
	return &Batch{backend: b, caller: caller, kind: KindUpkeep}
}

// Trips is how many times this batch has waited for Redis.
func (b *Batch) Trips() int { return b.trips }

// declared is one command of a batch, from its declaration to its reply.
type declared struct {
	owner  string
	cmd    *redis.Cmd
	script *Script // nil for a plain command
	keys   []string
	args   []any
}

// Handle is a reply to come, as a T.
type Handle[T any] struct {
	batch  *Batch
	d      *declared
	decode func(any) (T, error)
}

// Declare adds a command. The owner is the component that asks, for traces; decode turns the raw reply into a T and
// is called only when the command did not fail.
func Declare[T any](b *Batch, owner string, decode func(any) (T, error), args ...any) Handle[T] {
	return add(b, &declared{owner: owner, cmd: redis.NewCmd(context.Background(), args...)}, decode)
}

// Eval adds a script call. A script that the server has lost costs its owner one direct call; nobody else notices.
func Eval[T any](b *Batch, owner string, decode func(any) (T, error), s *Script, keys []string, args ...any) Handle[T] {
	d := &declared{owner: owner, script: s, keys: keys, args: args}
	d.cmd = redis.NewCmd(context.Background(), s.call(b.backend.dialect, b.backend.eval, keys, args)...)
	return add(b, d, decode)
}

func add[T any](b *Batch, d *declared, decode func(any) (T, error)) Handle[T] {
	b.waiting = append(b.waiting, d)
	return Handle[T]{batch: b, d: d, decode: decode}
}

// Get returns the reply, sending the batch if that has not been done. The error is ErrNil for a key that is not there,
// wraps [ErrUnavailable] when Redis did not answer within the deadline, and else is the server's own reply to this
// command. The context adds nothing to the deadline and does not cut the batch short: what has been sent is waited for,
// so that its outcome is known even if the caller is about to leave.
func (h Handle[T]) Get(ctx context.Context) (T, error) {
	h.batch.send(ctx)
	raw, err := h.d.cmd.Result()
	if err != nil {
		var zero T
		if isReply(err) || errors.Is(err, ErrUnavailable) {
			return zero, err
		}
		return zero, unavailable(err)
	}
	return h.decode(raw)
}

var errBreaker = errors.New("it did not answer lately")

// send sends what is waiting, and once more what provably was not executed. What does not answer within the deadline is
// not tried again.
func (b *Batch) send(ctx context.Context) {
	if len(b.waiting) == 0 {
		return
	}
	sent := b.waiting
	b.waiting = nil
	began := time.Now()
	b.trips++
	b.backend.run(ctx, b.kind, b.caller, sent)
	if again := b.retry(sent, time.Since(began) < b.backend.deadline); len(again) > 0 {
		b.trips++
		b.backend.run(ctx, KindAgain, b.caller, again)
	}
}

// retry picks the commands that may be sent once more, with fresh commands to hold the second reply. What the server
// refused unexecuted it answered in time; a connection is only tried again while there is time left.
func (b *Batch) retry(sent []*declared, timeLeft bool) []*declared {
	var again []*declared
	for _, d := range sent {
		err := d.cmd.Err()
		if err == nil || !NotExecuted(err) && (!neverSent(err) || !timeLeft) {
			continue
		}
		args := d.cmd.Args()
		if isNoScript(err) {
			args = d.script.call(b.backend.dialect, true, d.keys, d.args)
		}
		d.cmd = redis.NewCmd(context.Background(), args...)
		again = append(again, d)
	}
	return again
}

// Raw is the decode function for callers that want the reply as go-redis gives it.
func Raw(v any) (any, error) { return v, nil }

// Bytes decodes a bulk string.
func Bytes(v any) ([]byte, error) {
	s, ok := v.(string)
	if !ok {
		return nil, errors.New("reply is no string")
	}
	return []byte(s), nil
}
