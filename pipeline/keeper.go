package pipeline

import (
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline/journal"
)

// keeper puts on disk what Redis has not answered in good time, and brings back what is on disk only: what found no room
// in memory, and what processes left behind that died. Only its own goroutine touches the journal.
//
// A copy on disk does no harm when its write is answered meanwhile: replayed, its number shows that it was applied.
type keeper struct {
	d       *Deferred
	journal *journal.Journal
	every   time.Duration
	scripts map[string]*Script // by source, of what was read back
	next    journal.Mark       // what is read back next
	said    map[string]time.Time

	// guarded by the queue's lock
	kept     int      // writes of this process in memory that are on disk too
	spilled  []*write // on their way to disk, for want of room in memory
	size     int      // of these
	unread   int      // about how many are on disk only
	below    bool     // something is on disk only
	old      []*remains
	draining bool
}

func newKeeper(d *Deferred, j *journal.Journal, every time.Duration) *keeper {
	k := &keeper{d: d, journal: j, every: every, scripts: map[string]*Script{}, said: map[string]time.Time{}}
	for _, l := range j.Leftovers() {
		k.old = append(k.old, &remains{Leftover: l})
		d.opt.Log.Info("journal of an earlier process will be replayed", "file", l.Path(), "bytes", l.Size())
	}
	return k
}

// run looks after the journal until the queue ends.
func (k *keeper) run() {
	tick := time.NewTicker(max(k.every/2, time.Millisecond)) // so that a write waits for the disk no longer than said
	defer tick.Stop()
	for {
		select {
		case <-k.d.ctx.Done():
			return
		case <-tick.C:
			k.turn(k.every / 2)
		}
	}
}

// turn does what there is to do: it puts on disk what is older than age.
func (k *keeper) turn(age time.Duration) {
	k.save(age)
	k.bringBack()
	for k.replay() {
	}
	k.clean()
}

// save puts on disk what has not been answered for some time, and what has no room in memory.
func (k *keeper) save(age time.Duration) {
	aged, spilled := k.collect(age)
	if len(aged) > 0 && !k.keep(aged) {
		return // what is spilled must lie behind that
	}
	if len(spilled) > 0 {
		k.spill(spilled)
	}
}

// collect lists what is to go to disk. What is spilled lies behind the rest of its lane, and must in the journal too: then
// age does not count, and both are taken in the same moment.
func (k *keeper) collect(age time.Duration) (aged, spilled []*write) {
	d := k.d
	d.mu.Lock()
	defer d.mu.Unlock()
	before := time.Now()
	if spilled = k.spilled; len(spilled) == 0 {
		before = before.Add(-age)
	}
	for _, l := range d.lanes {
		for _, x := range l.queue[l.scanned:] {
			if x.once && !x.kept && x.from == nil {
				if x.at > before.UnixNano() {
					break
				}
				aged = append(aged, x)
			}
			l.scanned++
		}
	}
	return aged, spilled
}

// keep copies writes to disk. It says whether they are there.
func (k *keeper) keep(list []*write) bool {
	ok := k.append(list)
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	for _, x := range list {
		if ok && !x.gone {
			x.kept = true
			k.kept++
		}
	}
	if !ok { // they are looked at again
		for _, l := range k.d.lanes {
			l.scanned = 0
		}
	}
	return ok
}

// append puts writes on disk. It says whether they are there.
func (k *keeper) append(list []*write) bool {
	entries := make([]journal.Entry, len(list))
	for i, x := range list {
		entries[i] = x.entry()
	}
	err := k.journal.Append(entries)
	if err == nil {
		err = k.journal.Sync()
	}
	if err != nil {
		k.complain("the journal does not take deferred writes: they are in memory only", err)
	}
	return err == nil
}

// complain logs a fault once a minute.
func (k *keeper) complain(what string, err error) {
	if now := time.Now(); now.Sub(k.said[what]) > time.Minute {
		k.said[what] = now
		k.d.opt.Log.Error(what, "error", err)
	}
}

// spill moves writes to disk. What the disk does not take stays in line; how much may is bounded.
func (k *keeper) spill(list []*write) {
	if !k.holdsBelow() {
		k.next = k.journal.Mark()
	}
	if !k.append(list) {
		return
	}
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	k.spilled = k.spilled[len(list):]
	for _, x := range list {
		k.size -= x.size
	}
	k.unread += len(list)
	k.below = true
}

func (k *keeper) holdsBelow() bool {
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	return k.below
}

// clean empties the journal once all of it was answered.
func (k *keeper) clean() {
	d := k.d
	d.mu.Lock()
	idle := k.kept == 0 && !k.below && len(k.spilled) == 0
	d.mu.Unlock()
	if !idle || k.journal.Size() == 0 {
		return
	}
	if err := k.journal.Reset(); err != nil {
		k.complain("the journal cannot be emptied", err)
	}
}

// takes puts a write in line for the disk, if there is room in the line. The queue's lock is held.
func (k *keeper) takes(x *write) bool {
	if k.size+x.size > k.d.opt.MaxBytes/2 {
		return false
	}
	k.spilled = append(k.spilled, x)
	k.size += x.size
	return true
}

// holds says whether order asks that the next write follow others to disk. The queue's lock is held.
func (k *keeper) holds() bool { return k.below || len(k.spilled) > 0 }

// onDisk is how many writes the journals hold that were not answered. The queue's lock is held.
func (k *keeper) onDisk() int {
	n := k.kept + k.unread
	for _, l := range k.old {
		n += l.left()
	}
	return n
}

// gone is told of a write that was answered or dropped. The queue's lock is held.
func (k *keeper) gone(x *write) {
	x.gone = true
	if x.kept {
		k.kept--
	}
	if x.from != nil {
		x.from.unanswered--
	}
}

// finish puts on disk all that is left. It says how many writes are there, for the next start.
func (k *keeper) finish() (safe int) {
	k.d.mu.Lock()
	k.draining = true
	for _, l := range k.d.lanes {
		l.scanned = 0
	}
	k.d.mu.Unlock()
	k.save(0)
	k.clean()
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	for _, l := range k.old {
		if l.left() == 0 {
			k.remove(l)
		}
	}
	return k.onDisk()
}
