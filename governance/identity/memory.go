package identity

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// Source is where rows come from that Redis has no copy of. It must be safe for concurrent use.
type Source interface {
	// Find returns the row of each ref, in their order; nil where there is none, a tombstone where there was one. The
	// row of a key has its parts. It returns by the end of ctx.
	Find(ctx context.Context, refs []Ref) ([]*Row, error)
}

// Options of a Memory.
type Options struct {
	Backend  *pipeline.Backend
	Deferred *pipeline.Deferred // takes back to Redis what only the source had
	Prefix   string             // of all Redis keys
	Source   Source             // nil: Redis is all there is
	Log      *slog.Logger       // nil: nothing is logged
	Now      func() time.Time   // nil: time.Now
	// MaxKeys, MaxParts and MaxUnknown bound what is kept: keys, what keys belong to, and keys known to be nowhere.
	// Beyond them the least used goes. Zero means 50,000, 50,000 and 10,000.
	MaxKeys, MaxParts, MaxUnknown int
}

// Memory holds the identities of Redis that this process has seen. It is safe for concurrent use.
//
// Nothing in it is ever wrong for long: a row is good for 60 s, a message about it makes it stale at once, and while the
// channel of messages is lost all rows are stale. A stale row may be used by a request that reads it again in its own
// pipeline.
type Memory struct {
	opt Options

	tick atomic.Int64 // orders reads and messages: what was asked for before a message is older than it
	all  atomic.Int64 // the tick at which all that was read before became stale
	down atomic.Bool  // messages do not arrive

	mu      sync.RWMutex
	keys    table[[sha256.Size]byte]
	unknown table[[sha256.Size]byte]
	parts   table[Ref]
	flights map[[sha256.Size]byte]*Lookup
	running sync.WaitGroup
}

// NewMemory makes a memory. Until [Memory.Watch] hears messages, all that is in it counts as stale.
func NewMemory(opt Options) *Memory {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	m := &Memory{opt: opt, flights: map[[sha256.Size]byte]*Lookup{}}
	m.keys = newTable[[sha256.Size]byte](opt.MaxKeys, 50_000)
	m.unknown = newTable[[sha256.Size]byte](opt.MaxUnknown, 10_000)
	m.parts = newTable[Ref](opt.MaxParts, 50_000)
	m.down.Store(true)
	return m
}

// Key is what memory knows under the hash of a secret: an entry, whose row is nil when the key is known to be nowhere;
// or nil: it must be looked up.
func (m *Memory) Key(sum [sha256.Size]byte) *Entry {
	now := m.opt.Now()
	m.mu.RLock()
	e, ok := m.keys.rows[sum]
	if !ok {
		if e = m.unknown.rows[sum]; e != nil && !m.fresh(e, 0, now.UnixNano()) {
			e = nil
		}
	}
	m.mu.RUnlock()
	if e != nil {
		e.touch(now)
	}
	return e
}

// Part is the entry of something that a key belongs to. seed, which may be nil, is the row that came with the key.
func (m *Memory) Part(ref Ref, seed *Row) *Entry {
	now := m.opt.Now()
	m.mu.RLock()
	e := m.parts.rows[ref]
	m.mu.RUnlock()
	if e == nil {
		m.mu.Lock()
		if e = m.parts.rows[ref]; e == nil {
			e = newEntry(ref, now)
			m.parts.add(ref, e)
		}
		m.mu.Unlock()
	}
	if seed != nil {
		e.learn(seed)
	}
	e.touch(now)
	return e
}

// Stale appends to dst those of the entries that must be read again before what they say is final. What was asked for
// at or after the tick since is fresh whatever happened to the channel: a request gives the tick of its own refresh,
// or 0.
func (m *Memory) Stale(dst, entries []*Entry, since int64) []*Entry {
	now := m.opt.Now()
	nano := now.UnixNano()
	for _, e := range entries {
		e.touch(now)
		if !m.fresh(e, since, nano) {
			dst = append(dst, e)
		}
	}
	return dst
}

func (m *Memory) fresh(e *Entry, since, now int64) bool {
	s := e.state.Load()
	if since > 0 && s.read >= since {
		return true
	}
	return s.read > 0 && s.read >= e.invalid.Load() && s.read >= m.all.Load() && now < s.until && !m.down.Load() && !e.gone.Load()
}

// Tick is an instant between all reads and messages before it and all after it.
func (m *Memory) Tick() int64 { return m.tick.Add(1) }

// Outdated makes an entry stale: somebody has seen a higher revision.
func (m *Memory) Outdated(e *Entry) { raise(&e.invalid, m.Tick()) }

// raise keeps the highest of what several goroutines set.
func raise(at *atomic.Int64, to int64) {
	for {
		if was := at.Load(); was >= to || at.CompareAndSwap(was, to) {
			return
		}
	}
}

// Load brings the script that takes copies back to Redis into the server's cache.
func (m *Memory) Load(ctx context.Context) error { return m.opt.Backend.Load(ctx, copyScript) }

// Deaf says that messages about edits do not arrive at the moment, so that all rows are read again each time.
func (m *Memory) Deaf() bool { return m.down.Load() }

// Close waits for lookups that are under way.
func (m *Memory) Close() { m.running.Wait() }

// table is a bounded map of entries.
type table[K comparable] struct {
	max  int
	rows map[K]*Entry
}

func newTable[K comparable](limit, standard int) table[K] {
	if limit <= 0 {
		limit = standard
	}
	return table[K]{max: limit, rows: map[K]*Entry{}}
}

// sampled is how many entries are compared when one must go: Go walks a map from a random place, and the least used of a
// few is little used.
const sampled = 8

func (t *table[K]) add(k K, e *Entry) {
	t.drop(k)
	if len(t.rows) >= t.max {
		var least K
		n, used := 0, int64(0)
		for at, other := range t.rows {
			if u := other.used.Load(); n == 0 || u < used {
				least, used = at, u
			}
			if n++; n == sampled {
				break
			}
		}
		t.drop(least)
	}
	t.rows[k] = e
}

func (t *table[K]) drop(k K) {
	if e, ok := t.rows[k]; ok {
		e.gone.Store(true)
		delete(t.rows, k)
	}
}
