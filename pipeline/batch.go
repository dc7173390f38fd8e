package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Batch is everything one request asks of Redis before it goes on. Declare commands with [Declare] and [Eval]; the first
// Get on any handle sends them all: as one pipeline to each server that is asked, at the same time. A handle declared
// after that leaves with the next Get.
//
// A Batch belongs to one goroutine.
type Batch struct {
	*core
	backend *Backend
}

// core is what a batch has once, however many backends it asks.
type core struct {
	caller  string
	kind    Kind
	waiting []*declared // not sent yet
	trips   int
}

// Batch starts the batch of one request. The caller's name shows in traces.
func (b *Backend) Batch(caller string) *Batch { return b.start(KindRequest, caller) }

// Upkeep starts a batch that no request waits for.
func (b *Backend) Upkeep(caller string) *Batch { return b.start(KindUpkeep, caller) }

func (b *Backend) start(kind Kind, caller string) *Batch {
	return &Batch{core: &core{caller: caller, kind: kind}, backend: b}
}

// On is the same batch for commands to another backend. They leave at the same time; what is on its own backend anyway
// shares the pipeline.
func (b *Batch) On(other *Backend) *Batch {
	if other == b.backend {
		return b
	}
	return &Batch{core: b.core, backend: other}
}

// Trips is how many times this batch has waited for Redis. Servers that are asked at the same time are one wait.
func (b *Batch) Trips() int { return b.trips }

// Deadline is the longest that a wait of this batch lasts for the server's answer.
func (b *Batch) Deadline() time.Duration { return b.backend.deadline }

// declared is one command of a batch, from its declaration to its result.
type declared struct {
	owner   string
	backend *Backend
	slot    uint16
	cmd     *redis.Cmd
	script  *Script // nil for a plain command
	keys    []string
	args    []any
	asking  bool   // of a cluster: the slot is on its way to the server that is asked
	part    *share // that carries it, as far as its owner knows; nil before it is sent
	// late wants a reply that comes after the caller has gone on, and says whether it was of use.
	late func(any) bool

	val any
	err error
}

// Handle is a reply to come, as a T.
type Handle[T any] struct {
	batch  *core
	d      *declared
	decode func(any) (T, error)
}

// Declare adds a command whose first argument after the name is its key. The owner is the component that asks, for
// traces; decode turns the raw reply into a T and is called only when the command did not fail.
func Declare[T any](b *Batch, owner string, decode func(any) (T, error), args ...any) Handle[T] {
	d := &declared{owner: owner, backend: b.backend, cmd: redis.NewCmd(context.Background(), args...)}
	if b.backend.cluster != nil {
		d.slot = slot(keyOf(args))
	}
	return add(b, d, args, decode)
}

// Eval adds a script call. On a cluster its keys must share a slot. A script that the server has lost costs its owner one
// direct call; nobody else notices.
func Eval[T any](b *Batch, owner string, decode func(any) (T, error), s *Script, keys []string, args ...any) Handle[T] {
	d := &declared{owner: owner, backend: b.backend, script: s, keys: keys, args: args}
	d.cmd = redis.NewCmd(context.Background(), s.call(b.backend.dialect, b.backend.eval, keys, args)...)
	if b.backend.cluster != nil && len(keys) > 0 {
		d.slot = slot(keys[0])
	}
	return add(b, d, args, decode)
}

func add[T any](b *Batch, d *declared, args []any, decode func(any) (T, error)) Handle[T] {
	if err := b.backend.unfit(args); err != nil {
		d.err, d.part = err, noPart
	} else {
		b.waiting = append(b.waiting, d)
	}
	return Handle[T]{batch: b.core, d: d, decode: decode}
}

// noPart carries what is never sent.
var noPart = func() *share {
	s := &share{done: make(chan struct{}), depth: 1}
	s.first = s
	close(s.done)
	return s
}()

// keyOf is the key of a plain command: what follows its name.
func keyOf(args []any) string {
	if len(args) < 2 {
		return ""
	}
	if s, ok := args[1].(string); ok {
		return s
	}
	return fmt.Sprint(args[1])
}

// ErrTooLarge is what a handle returns whose command has an argument that the server would refuse, and the connection
// with it: it was not sent.
var ErrTooLarge = errors.New("an argument is larger than a redis value may be")

// ErrArgument is what a handle returns whose command has an argument of a type that has no form on the wire. Sent, it would
// fail the trip of all who share it.
var ErrArgument = errors.New("an argument cannot be sent")

// unfit says why a command must not be sent.
func (s *settings) unfit(args []any) error {
	for _, a := range args {
		size := 0
		switch v := a.(type) {
		case string:
			size = len(v)
		case []byte:
			size = len(v)
		case nil, bool, float64, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		default:
			return fmt.Errorf("%w: it is a %T", ErrArgument, a)
		}
		if size > s.maxValue {
			return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, s.maxValue)
		}
	}
	return nil
}

// Late sets who gets the reply when it comes after Get has returned [ErrUnavailable] because the deadline had passed. It
// is called on another goroutine, at most once, and not at all for an error, for a reply that never came, or, unless
// Options.KeepLate is set, for a first lone trip to a server that had been quick until then: that ends at the deadline, and
// its replies are lost. Set it before the first Get.
func (h Handle[T]) Late(to func(T)) {
	h.d.late = func(raw any) bool {
		v, err := h.decode(raw)
		if err == nil {
			to(v)
		}
		return err == nil
	}
}

// Get returns the reply, sending the batch if that has not been done. The error is ErrNil for a key that is not there,
// wraps [ErrUnavailable] when Redis did not answer within the deadline, and else is the server's own reply to this
// command. The context adds nothing to the deadline and does not cut the batch short: what has been sent is waited for,
// so that its outcome is known even if the caller is about to leave.
func (h Handle[T]) Get(ctx context.Context) (T, error) {
	if h.d.part == nil {
		h.batch.send(ctx)
	}
	h.batch.wait(h.d)
	if h.d.err != nil {
		var zero T
		return zero, h.d.err
	}
	return h.decode(h.d.val)
}

var errBreaker = errors.New("it did not answer lately")

// wait returns when a command has its result.
func (c *core) wait(d *declared) {
	for {
		s := d.part
		<-s.done
		if s.depth > s.first.waited && s != noPart {
			c.trips += s.depth - s.first.waited
			s.first.waited = s.depth
		}
		next := s.further[d]
		if next == nil {
			return
		}
		d.part = next
	}
}

// send sends what is waiting, in one share for each server.
func (c *core) send(ctx context.Context) {
	list := c.waiting
	c.waiting = nil
	var first *share
	for len(list) > 0 {
		b := list[0].backend
		n := b.node(ctx, list[0].slot)
		mine, others := list, []*declared(nil)
		if b.cluster != nil || !allOf(list, b) {
			mine, others = split(ctx, list, n)
		}
		s := &share{
			ctx: ctx, backend: b, kind: c.kind, caller: c.caller, list: mine, done: make(chan struct{}), depth: 1, tries: 1,
		}
		if first == nil {
			first = s
		}
		s.first = first
		for _, d := range mine {
			d.part = s
		}
		switch {
		case n == nil:
			s.fail(errNoNodes)
		case s == first && len(others) == 0:
			n.carry(s) // all there is
		default:
			n.submit(s)
		}
		list = others
	}
}

// allOf says whether all commands go to one backend.
func allOf(list []*declared, b *Backend) bool {
	for _, d := range list {
		if d.backend != b {
			return false
		}
	}
	return true
}

// split separates what goes to a server from what goes elsewhere.
func split(ctx context.Context, list []*declared, n *node) (mine, others []*declared) {
	for i, d := range list {
		if i == 0 || d.backend.node(ctx, d.slot) == n {
			mine = append(mine, d)
		} else {
			others = append(others, d)
		}
	}
	return mine, others
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
