package pipeline

import (
	"errors"
	"fmt"
	"io"

	"github.com/tollgate-proxy/tollgate/pipeline/journal"
)

// remains is what a dead process left behind.
type remains struct {
	*journal.Leftover
	unanswered int  // of those read, guarded by the queue's lock
	read       bool // to the end
}

// left is how many writes of it are not answered; what was not read counts as one, for nobody knows how much it is. The
// queue's lock is held.
func (l *remains) left() int {
	if l.read {
		return l.unanswered
	}
	return l.unanswered + 1
}

// readBack is how many writes are brought back at a time.
const readBack = 1000

// bringBack reads what is on disk only, as far as there is room in memory.
func (k *keeper) bringBack() {
	for {
		d := k.d
		d.mu.Lock()
		idle := !k.below || !d.roomy() || k.draining
		d.mu.Unlock()
		if idle {
			return
		}
		entries, next, err := k.journal.ReadFrom(k.next, readBack)
		k.next = next
		if err != nil && !errors.Is(err, io.EOF) {
			k.complain("the journal cannot be read", err)
			return
		}
		d.mu.Lock()
		for i := range entries {
			x := k.write(&entries[i])
			x.kept = true
			k.kept++
			d.push(x)
		}
		k.unread = max(0, k.unread-len(entries))
		if k.unread == 0 || errors.Is(err, io.EOF) { // nothing is appended meanwhile: only this goroutine does
			k.unread, k.below = 0, false
		}
		d.mu.Unlock()
	}
}

// replay reads what a dead process left, as far as there is room. It says whether there may be more to do.
func (k *keeper) replay() bool {
	d := k.d
	d.mu.Lock()
	if len(k.old) == 0 || !d.roomy() || k.draining {
		d.mu.Unlock()
		return false
	}
	l := k.old[0]
	done := l.read && l.unanswered == 0
	read := l.read
	if done {
		k.old = k.old[1:]
	}
	d.mu.Unlock()
	if done {
		k.remove(l)
		return true
	}
	if read {
		return false
	}
	entries, err := l.Next(readBack)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range entries {
		x := k.write(&entries[i])
		x.from = l
		l.unanswered++
		d.push(x)
	}
	if err != nil {
		if !errors.Is(err, io.EOF) {
			k.complain("a journal cannot be read on", fmt.Errorf("%s: %w", l.Path(), err))
		}
		l.read = true
	}
	return true
}

// remove takes a journal away that was replayed.
func (k *keeper) remove(l *remains) {
	if err := l.Remove(); err != nil {
		k.complain("a journal that was replayed cannot be removed", err)
		return
	}
	k.d.opt.Log.Info("journal of an earlier process was replayed", "file", l.Path())
}
