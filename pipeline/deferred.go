package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
)

// DeferredOptions tunes the queue of deferred writes.
type DeferredOptions struct {
	// Deadline is how long a Writes that nobody closes keeps what was declared. Zero means one second.
	Deadline time.Duration
	// MaxPending bounds the queue, in commands. Beyond it replaceable writes go first, then new writes are refused; both
	// are counted and logged. Zero means 200,000.
	MaxPending int
	// MaxBytes bounds what the queue holds in memory, by the size of keys and arguments. Zero means 256 MiB.
	MaxBytes int
	// MaxFlush bounds one pipeline, in commands. Zero means 4,096. No pipeline holds much more than 4 MiB.
	MaxFlush int
	// Workers is how many flushes to one server may be under way at the same time. Zero means one. With more, and always
	// on a cluster, order is kept among the writes of a slot, which their hash tag decides, and not beyond it.
	Workers int
	Log     *slog.Logger
}

// Deferred is the queue through which everything that requests write afterwards leaves. A lone write leaves at once; what
// arrives while a flush is under way leaves together with the next one. A flush is repeated until it is answered. It is
// safe for concurrent use, and none of its methods but Drain does I/O.
type Deferred struct {
	backend *Backend
	opt     DeferredOptions
	writer  string

	mu       sync.Mutex
	seq      int64 // the last number given to a Once
	lanes    map[uint16]*lane
	boxes    map[*node]*outbox
	epoch    int64 // of the cluster's slots, when the boxes were filled
	pending  int   // commands, those under way included
	bytes    int
	spare    int // of them replaceable
	open     map[*Writes]time.Time
	dropped  int64
	stopping bool

	ctx     context.Context //nolint:containedctx // ends with Drain: flushes belong to no caller
	stop    context.CancelFunc
	running sync.WaitGroup
}

// NewDeferred starts a queue with a new writer id.
func NewDeferred(b *Backend, opt DeferredOptions) *Deferred {
	if opt.Deadline <= 0 {
		opt.Deadline = time.Second
	}
	if opt.MaxPending <= 0 {
		opt.MaxPending = 200_000
	}
	if opt.MaxBytes <= 0 {
		opt.MaxBytes = 256 << 20
	}
	if opt.MaxFlush <= 0 {
		opt.MaxFlush = 4096
	}
	if opt.Workers <= 0 {
		opt.Workers = 1
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	d := &Deferred{
		backend: b, opt: opt, writer: uuid.Must(uuid.NewV7()).String(),
		lanes: map[uint16]*lane{}, boxes: map[*node]*outbox{}, open: map[*Writes]time.Time{},
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.running.Go(d.tick)
	return d
}

// Writer is the id under which this process' Once writes are numbered.
func (d *Deferred) Writer() string { return d.writer }

// Pending is how many commands wait or are under way.
func (d *Deferred) Pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pending
}

// Dropped is how many commands were given up: because the queue was full, or because they may be lost and could not be
// repeated in their place.
func (d *Deferred) Dropped() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dropped
}

// tick hands on what Writes left open beyond their deadline.
func (d *Deferred) tick() {
	tick := time.NewTicker(d.opt.Deadline / 4)
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case now := <-tick.C:
			d.expire(now)
		}
	}
}

func (d *Deferred) opened(w *Writes) {
	d.mu.Lock()
	d.open[w] = time.Now().Add(d.opt.Deadline)
	d.mu.Unlock()
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

// errFull is logged with each write that finds no room.
var errFull = errors.New("queue of deferred writes is full")

func (d *Deferred) enqueue(w *Writes, list []*write) {
	d.mu.Lock()
	delete(d.open, w)
	size := 0
	for _, x := range list {
		size += x.size
	}
	dropped := d.makeRoom(len(list), size)
	for _, x := range list {
		if d.pending >= d.opt.MaxPending || d.bytes+x.size > d.opt.MaxBytes {
			dropped++
			continue
		}
		if x.once {
			d.seq++
			x.writer, x.seq = d.writer, d.seq
		}
		d.push(x)
	}
	d.dropped += int64(dropped)
	d.mu.Unlock()
	if dropped > 0 {
		d.opt.Log.Error("deferred writes lost", "error", errFull, "lost", dropped, "limit", d.opt.MaxPending, "limit_bytes", d.opt.MaxBytes)
	}
}

// push puts a write behind those of its lane. The lock is held.
func (d *Deferred) push(x *write) {
	d.pending++
	d.bytes += x.size
	if x.replaceable {
		d.spare++
	}
	l := d.lanes[x.slot]
	if l == nil {
		l = &lane{slot: x.slot}
		d.lanes[x.slot] = l
	}
	l.queue = append(l.queue, x)
	if !l.listed {
		d.ready(l)
	}
}

// gone counts a write out. The lock is held.
func (d *Deferred) gone(x *write) {
	d.pending--
	d.bytes -= x.size
	if x.replaceable {
		d.spare--
	}
}

// makeRoom drops replaceable writes that are not under way until n more of a size fit. It says how many it dropped. The
// lock is held.
func (d *Deferred) makeRoom(n, size int) int {
	dropped := 0
	full := func() bool {
		return d.spare > 0 && (d.pending+n > d.opt.MaxPending || d.bytes+size > d.opt.MaxBytes)
	}
	for _, l := range d.lanes {
		if !full() {
			break
		}
		kept := l.queue[:l.flying:l.flying]
		for _, x := range l.queue[l.flying:] {
			if x.replaceable && full() {
				d.gone(x)
				dropped++
				continue
			}
			kept = append(kept, x)
		}
		l.queue = kept
	}
	return dropped
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
	d.mu.Lock()
	d.stopping = true
	d.mu.Unlock()
	d.stop()
	d.running.Wait()
	return d.Pending()
}
