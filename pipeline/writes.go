package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-proxy/tollgate/pipeline/journal"
)

// Writes is what one request writes afterwards. It belongs to one goroutine; Close is idempotent.
type Writes struct {
	deferred *Deferred
	caller   string             // the request, for traces; "" when it is not known
	span     *trace.SpanContext // its span; nil when it has none
	mu       sync.Mutex         // the queue's deadline may take what is there
	list     []*write
	room     [2]*write // a first list, for a list of its own is too much for most
	closed   bool      // once: then the room is taken

	// guarded by the queue's lock
	until      time.Time
	prev, next *Writes // among the open ones
	isOpen     bool
}

// write is one queued command.
type write struct {
	owner       string
	of          *Writes // that declared it; nil for what was found on disk
	slot        uint16
	size        int     // of keys and arguments, in bytes
	script      *Script // nil for a plain command
	keys        []string
	args        []any // of a plain command all of it
	once        bool
	writer      string // of a once
	seq         int64  // its number
	replaceable bool   // may be dropped: it is about a copy, or the next one makes good for it
	whole       bool   // the server has not got the script
	cmd         *redis.Cmd

	// for the keeper
	at   int64    // when it was queued, in unix nanoseconds
	kept bool     // it is on disk too, in this process' journal
	gone bool     // it was answered or dropped
	from *remains // where it was found; nil for this process' own
}

// Writes starts the deferred batch of one request. Nothing is sent until Close, or until the deadline after the first
// declaration.
func (d *Deferred) Writes() *Writes { return &Writes{deferred: d} }

// For names the request whose writes these are, for traces, before the first is declared. The spans of the trips that
// carry them link to its span, when ctx has one that is sampled.
func (w *Writes) For(ctx context.Context, caller string) {
	w.caller = caller
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		w.span = &sc
	}
}

// Writer is the id under which Once writes are numbered.
func (w *Writes) Writer() string { return w.deferred.writer }

// Do declares a command that may be repeated and may be lost, such as setting a copy. Its key follows its name.
func (w *Writes) Do(owner string, args ...any) {
	w.add(&write{owner: owner, args: args, replaceable: true}, keyOf(args), args)
}

// Eval declares a script that may be repeated and may be lost, because a later one makes good for it.
func (w *Writes) Eval(owner string, s *Script, keys []string, args ...any) {
	w.add(&write{owner: owner, script: s, keys: keys, args: args, replaceable: true}, first(keys), args)
}

// Once declares a script made by [NewOnce]: it is applied exactly once. keys[0] is where the number of the writer's last
// write is kept; its name must hold the writer's id, and the hash tag of the other keys.
func (w *Writes) Once(owner string, s *Script, keys []string, args ...any) {
	w.add(&write{owner: owner, script: s, keys: keys, args: args, once: true}, first(keys), args)
}

// slotOf is the slot in whose order a write belongs: one for all where order is kept among all.
func (d *Deferred) slotOf(key string) uint16 {
	if d.backend.cluster == nil && d.opt.Workers == 1 {
		return 0
	}
	return slot(key)
}

func first(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

func (w *Writes) add(x *write, key string, args []any) {
	d := w.deferred
	x.size = sizeOf(x.keys, args)
	err := d.backend.unfit(args)
	if err == nil && x.once && d.keeper != nil && x.size > journal.MaxEntry/2 {
		err = fmt.Errorf("%w: %d bytes, and the journal does not take that", ErrTooLarge, x.size)
	}
	if err != nil {
		d.opt.Log.Error("deferred write refused", "owner", x.owner, "error", err)
		d.mu.Lock()
		defer d.mu.Unlock()
		if x.once {
			d.lost++
		} else {
			d.dropped++
		}
		return
	}
	x.of, x.slot = w, d.slotOf(key)
	w.mu.Lock()
	opens := len(w.list) == 0
	if w.list == nil && !w.closed {
		w.list = w.room[:0]
	}
	w.list = append(w.list, x)
	w.mu.Unlock()
	if opens {
		d.opened(w)
	}
}

// sizeOf is about what a write takes in memory.
func sizeOf(keys []string, args []any) int {
	size := 200 // of the write itself
	for _, k := range keys {
		size += len(k)
	}
	for _, a := range args {
		switch v := a.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		default:
			size += 16
		}
	}
	return size
}

// Close hands everything declared to the queue. It does no I/O.
func (w *Writes) Close() {
	w.mu.Lock()
	list := w.list
	w.list, w.closed = nil, true
	w.mu.Unlock()
	if len(list) > 0 {
		w.deferred.enqueue(w, list)
		clear(list) // it may be the room, which w keeps
	}
}

// command builds the command as it is sent now. before is the number of the write that goes before it in the same flush
// and is numbered in the same place; 0: there is none.
func (x *write) command(b *Backend, before int64) []any {
	if x.script == nil {
		return x.args
	}
	args := x.args
	if x.once {
		args = make([]any, 2, 2+len(x.args))
		args[0], args[1] = x.seq, ""
		if before > 0 {
			args[1] = before
		}
		args = append(args, x.args...)
	}
	return x.script.call(b.dialect, x.whole || b.eval, x.keys, args)
}
