package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// DeferredOptions tunes the queue of deferred writes.
type DeferredOptions struct {
	// Deadline is how long a Writes that nobody closes keeps what was declared. Zero means one second.
	Deadline time.Duration
	// MaxPending bounds the queue, in commands. Beyond it the oldest replaceable writes go first, then new writes are
	// refused; both are counted and logged. Zero means 200,000.
	MaxPending int
	// MaxFlush bounds one pipeline, in commands. Zero means 512.
	MaxFlush int
	Log      *slog.Logger
}

// Deferred is the queue through which everything that requests write afterwards leaves, in one order. One flush is
// under way at a time: a lone write leaves at once, and what arrives meanwhile leaves together. A flush is repeated
// until it is answered. It is safe for concurrent use.
type Deferred struct {
	backend *Backend
	opt     DeferredOptions
	writer  string

	mu      sync.Mutex
	seq     int64    // the last number given to a Once
	queue   []*write // in order, not yet answered
	flying  int      // how many at the front are under way
	open    map[*Writes]time.Time
	dropped int64
	wake    chan struct{}

	stop    context.CancelFunc
	stopped chan struct{}
}

// write is one queued command.
type write struct {
	owner       string
	plain       []any   // a command without a script
	script      *Script // else a script
	keys        []string
	args        []any
	seq         int64 // of a Once; 0 for others
	replaceable bool  // may be dropped: it is about a copy, or the next one makes good for it
	unknown     bool  // a reply was lost: it may have run
	cmd         *redis.Cmd
}

// NewDeferred starts a queue with a new writer id.
func NewDeferred(b *Backend, opt DeferredOptions) *Deferred {
	if opt.Deadline <= 0 {
		opt.Deadline = time.Second
	}
	if opt.MaxPending <= 0 {
		opt.MaxPending = 200_000
	}
	if opt.MaxFlush <= 0 {
		opt.MaxFlush = 512
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Deferred{
		backend: b, opt: opt, writer: uuid.Must(uuid.NewV7()).String(),
		open: map[*Writes]time.Time{}, wake: make(chan struct{}, 1), stop: cancel, stopped: make(chan struct{}),
	}
	go d.run(ctx)
	return d
}

// Writer is the id under which this process' Once writes are numbered.
func (d *Deferred) Writer() string { return d.writer }

// Pending is how many commands wait or are under way.
func (d *Deferred) Pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue)
}

// Dropped is how many commands were given up because the queue was full.
func (d *Deferred) Dropped() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dropped
}

// Writes is what one request writes afterwards. It belongs to one goroutine; Close is idempotent.
type Writes struct {
	deferred *Deferred
	mu       sync.Mutex // the queue's deadline may take what is there
	list     []*write
}

// Writes starts the deferred batch of one request. Nothing is sent until Close, or until the deadline after the first
// declaration.
func (d *Deferred) Writes() *Writes { return &Writes{deferred: d} }

// Writer is the id under which Once writes are numbered.
func (w *Writes) Writer() string { return w.deferred.writer }

// Do declares a command that may be repeated and may be lost, such as setting a copy.
func (w *Writes) Do(owner string, args ...any) {
	w.add(&write{owner: owner, plain: args, replaceable: true})
}

// Eval declares a script that may be repeated and may be lost, because a later one makes good for it.
func (w *Writes) Eval(owner string, s *Script, keys []string, args ...any) {
	w.add(&write{owner: owner, script: s, keys: keys, args: args, replaceable: true})
}

// Once declares a script that is applied exactly once. It gets the writer's id as ARGV[1] and the write's number as
// ARGV[2], followed by args; KEYS[1] must hold the last number applied of that writer (or be made to), and the script
// must do nothing when that is not below ARGV[2]. Numbers grow in the order in which writes are sent.
func (w *Writes) Once(owner string, s *Script, keys []string, args ...any) {
	w.add(&write{owner: owner, script: s, keys: keys, args: args, seq: -1})
}

func (w *Writes) add(x *write) {
	w.mu.Lock()
	first := len(w.list) == 0
	w.list = append(w.list, x)
	w.mu.Unlock()
	if first {
		w.deferred.opened(w)
	}
}

// Close hands everything declared to the queue. It does no I/O.
func (w *Writes) Close() {
	w.mu.Lock()
	list := w.list
	w.list = nil
	w.mu.Unlock()
	if list != nil {
		w.deferred.enqueue(w, list)
	}
}

func (d *Deferred) opened(w *Writes) {
	d.mu.Lock()
	d.open[w] = time.Now().Add(d.opt.Deadline)
	d.mu.Unlock()
}

// errFull is logged with each write that finds no room.
var errFull = errors.New("queue of deferred writes is full")

func (d *Deferred) enqueue(w *Writes, list []*write) {
	d.mu.Lock()
	delete(d.open, w)
	dropped := d.makeRoom(len(list))
	for _, x := range list {
		if len(d.queue) >= d.opt.MaxPending {
			dropped++
			continue
		}
		if x.seq != 0 {
			d.seq++
			x.seq = d.seq
		}
		d.queue = append(d.queue, x)
	}
	d.dropped += int64(dropped)
	d.mu.Unlock()
	if dropped > 0 {
		d.opt.Log.Error("deferred writes lost", "error", errFull, "lost", dropped, "limit", d.opt.MaxPending)
	}
	select {
	case d.wake <- struct{}{}:
	default: // the flusher is awake
	}
}

// makeRoom drops replaceable writes that are not under way, oldest first, until n more fit. It says how many it dropped.
func (d *Deferred) makeRoom(n int) int {
	over := len(d.queue) + n - d.opt.MaxPending
	if over <= 0 {
		return 0
	}
	dropped := 0
	kept := d.queue[:d.flying:d.flying]
	for _, x := range d.queue[d.flying:] {
		if x.replaceable && dropped < over {
			dropped++
			continue
		}
		kept = append(kept, x)
	}
	d.queue = kept
	return dropped
}

// expire takes what Writes left open beyond their deadline.
func (d *Deferred) expire(now time.Time) {
	d.mu.Lock()
	var due []*Writes
	for w, at := range d.open {
		if !now.Before(at) {
			due = append(due, w)
		}
	}
	d.mu.Unlock()
	for _, w := range due {
		w.Close()
	}
}

// Drain closes every open Writes, sends what is queued and stops the queue; it returns how many commands were left
// unanswered when ctx ended.
func (d *Deferred) Drain(ctx context.Context) int {
	d.expire(time.Now().Add(24 * time.Hour))
	for d.Pending() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
	d.stop()
	<-d.stopped
	return d.Pending()
}
