package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tollgate-proxy/tollgate/pipeline/journal"
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
	// Journal keeps on disk the exactly-once writes that Redis has not answered within JournalAfter (zero means at once),
	// and those that have no room in memory. What it holds of dead processes is replayed. The queue closes it. Nil keeps
	// nothing: writes beyond the bounds, and those left at the end, are lost.
	Journal      *journal.Journal
	JournalAfter time.Duration
	Log          *slog.Logger
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
	open     openList
	lost     int64
	refused  int64
	dropped  int64
	stopping bool
	warned   time.Time // when the log was told last that Redis does not take writes
	keeper   *keeper   // nil: nothing is kept on disk

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
		lanes: map[uint16]*lane{}, boxes: map[*node]*outbox{},
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.running.Go(d.tick)
	if opt.Journal != nil {
		d.keeper = newKeeper(d, opt.Journal, opt.JournalAfter)
		d.running.Go(d.keeper.run)
	}
	return d
}

// Writer is the id under which this process' Once writes are numbered.
func (d *Deferred) Writer() string { return d.writer }

// Pending is how many commands wait or are under way, those included that are on disk only.
func (d *Deferred) Pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.pending
	if k := d.keeper; k != nil {
		n += len(k.spilled) + k.unread
		for _, l := range k.old {
			n += l.left() - l.unanswered // those that were read are pending
		}
	}
	return n
}

// DeferredStats say how a queue is doing.
type DeferredStats struct {
	Pending int // commands that Redis has not answered, those on disk included
	OnDisk  int // exactly-once writes that are in the journal
	// Lost are exactly-once writes that were given up: for want of room, because they cannot be sent, or because they came
	// after Drain.
	Lost int64
	// Refused are writes, of either kind, that Redis answered with an error for good: a key of the wrong type, say. A script
	// may have run half-way.
	Refused int64
	// Dropped are writes that may be lost and were: for want of room, or because they could not be repeated in their place.
	Dropped int64
	Journal journal.Stats // zero without a journal
}

// Stats says how the queue is doing.
func (d *Deferred) Stats() DeferredStats {
	s := DeferredStats{Pending: d.Pending()}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Lost, s.Refused, s.Dropped = d.lost, d.refused, d.dropped
	if k := d.keeper; k != nil {
		s.OnDisk, s.Journal = k.onDisk(), d.opt.Journal.Stats()
	}
	return s
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
	w.until = time.Now().Add(d.opt.Deadline)
	d.open.add(w)
	d.mu.Unlock()
}

// expire takes what Writes left open beyond their deadline.
func (d *Deferred) expire(now time.Time) {
	for {
		d.mu.Lock()
		w := d.open.first
		if w == nil || now.Before(w.until) {
			d.mu.Unlock()
			return
		}
		d.open.remove(w)
		d.mu.Unlock()
		w.Close()
	}
}

// What is logged with writes that are given up.
var (
	errFull    = errors.New("queue of deferred writes is full")
	errStopped = errors.New("queue of deferred writes has stopped")
)

func (d *Deferred) enqueue(w *Writes, list []*write) {
	d.mu.Lock()
	d.open.remove(w)
	size := 0
	for _, x := range list {
		size += x.size
	}
	lost, dropped := d.lost, d.dropped
	d.makeRoom(len(list), size)
	now := time.Now()
	for _, x := range list {
		if x.once {
			d.seq++
			x.writer, x.seq, x.at = d.writer, d.seq, now.UnixNano()
		}
		d.place(x)
	}
	lost, dropped = d.lost-lost, d.dropped-dropped
	cause := errFull
	if d.stopping {
		cause = errStopped
	}
	d.mu.Unlock()
	if lost > 0 || dropped > 0 {
		d.opt.Log.Error("deferred writes given up", "error", cause, "lost", lost, "dropped", dropped,
			"limit", d.opt.MaxPending, "limit_bytes", d.opt.MaxBytes)
	}
}

// place finds a place for a write: in memory, on disk, or none. The lock is held.
func (d *Deferred) place(x *write) {
	full := d.pending >= d.opt.MaxPending || d.bytes+x.size > d.opt.MaxBytes
	k := d.keeper
	switch {
	case d.stopping && x.once:
		d.lost++ // nobody would send it, and the journal takes no more
	case !full && !d.stopping && (!x.once || k == nil || !k.holds()):
		d.push(x)
	case !x.once:
		d.dropped++
	case k == nil || !k.takes(x):
		d.lost++
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
	if d.keeper != nil {
		d.keeper.gone(x)
	}
}

// roomy says whether memory is far from full. The lock is held.
func (d *Deferred) roomy() bool { return d.pending < d.opt.MaxPending/2 && d.bytes < d.opt.MaxBytes/2 }

// makeRoom drops replaceable writes that are not under way until n more of a size fit. The lock is held.
func (d *Deferred) makeRoom(n, size int) {
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
				d.dropped++
				continue
			}
			kept = append(kept, x)
		}
		l.queue, l.scanned = kept, 0
	}
}

// Drain closes every open Writes, sends what is queued and stops the queue. It returns how many commands Redis had not
// answered when ctx ended, and how many of them are lost: the others are in the journal, for the next start.
func (d *Deferred) Drain(ctx context.Context) (left, lost int) {
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
	left = d.Pending()
	lost = left
	if k := d.keeper; k != nil {
		lost = max(0, left-k.finish())
		if err := d.opt.Journal.Close(); err != nil {
			d.opt.Log.Error("the journal cannot be closed", "error", err)
		}
	}
	return left, lost
}
