package identity

import (
	"sync/atomic"
	"time"
)

// How long what was read is good without another look.
const (
	rowLife     = 60 * time.Second
	unknownLife = 10 * time.Second // of a key that is nowhere
)

// Entry is one identity in memory. It is safe for concurrent use.
type Entry struct {
	ref   Ref
	state atomic.Pointer[state]
	// invalid is the tick of the last message about it: what was asked for before that may be older than the edit.
	invalid atomic.Int64
	gone    atomic.Bool  // it left memory: no message reaches it
	used    atomic.Int64 // unix seconds

	// Made is what the reader of a key has made of it. This package does not look at it.
	Made atomic.Value
}

// state is what was read, and when.
type state struct {
	row   *Row  // nil: there is none
	read  int64 // the tick at which it was asked for; 0: it came with something else
	until int64 // unix nanoseconds
}

// Row is the newest row known; nil when there is none.
func (e *Entry) Row() *Row { return e.state.Load().row }

// Gone says that memory no longer holds the entry, so that nothing keeps it true.
func (e *Entry) Gone() bool { return e.gone.Load() }

func newEntry(ref Ref, now time.Time) *Entry {
	e := &Entry{ref: ref}
	e.state.Store(&state{})
	e.used.Store(now.Unix())
	return e
}

// take keeps a row that was asked for at a tick, unless a higher revision is known. A row of nil says that there is
// none, and counts only when nothing was asked for later.
func (e *Entry) take(row *Row, read int64, now time.Time) {
	for {
		old := e.state.Load()
		next := &state{row: row, read: max(read, old.read), until: now.Add(rowLife).UnixNano()}
		switch {
		case row == nil && old.read > read:
			return
		case row == nil && e.ref.Kind == KindKey:
			next.until = now.Add(unknownLife).UnixNano()
		case row != nil && old.row != nil && old.row.Revision >= row.Revision:
			next.row = old.row
		}
		if e.state.CompareAndSwap(old, next) {
			return
		}
	}
}

// confirm says that what is known was still so at a tick.
func (e *Entry) confirm(read int64, now time.Time) {
	for {
		old := e.state.Load()
		next := &state{row: old.row, read: max(read, old.read), until: now.Add(rowLife).UnixNano()}
		if e.state.CompareAndSwap(old, next) {
			return
		}
	}
}

// learn keeps a row that came with something else, if it is newer than what is known: it is used, and read again soon.
func (e *Entry) learn(row *Row) {
	for {
		old := e.state.Load()
		if old.row != nil && old.row.Revision >= row.Revision {
			return
		}
		if e.state.CompareAndSwap(old, &state{row: row}) {
			return
		}
	}
}

// touch notes that the entry is in use. The clock's second is written once, not by each request.
func (e *Entry) touch(now time.Time) {
	if s := now.Unix(); e.used.Load() != s {
		e.used.Store(s)
	}
}
