package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// Lookup is the search for a key that memory lacks, shared by all who ask for it meanwhile.
type Lookup struct {
	done    chan struct{}
	invalid atomic.Int64 // as of an Entry

	entry *Entry // when done, or
	err   error
	trips int
}

// Wait returns the key's entry; its row is nil when the key is nowhere. The error says that the stores did not tell. The
// search itself is bounded by the pipeline's deadline, once for each store, and goes on when ctx ends.
func (l *Lookup) Wait(ctx context.Context) (*Entry, error) {
	select {
	case <-l.done:
		return l.entry, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Done says whether Wait would return at once.
func (l *Lookup) Done() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// Trips is how many times the search has waited for Redis; it may be asked when Wait has returned without an error.
func (l *Lookup) Trips() int { return l.trips }

// Lookup starts the search for a key, or joins the one that is under way. It does no I/O itself.
func (m *Memory) Lookup(sum [sha256.Size]byte) *Lookup {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.flights[sum]; l != nil {
		return l
	}
	l := &Lookup{done: make(chan struct{})}
	m.flights[sum] = l
	m.running.Go(func() { m.search(sum, l) })
	return l
}

// search finds a key in Redis, else in the source.
func (m *Memory) search(sum [sha256.Size]byte, l *Lookup) {
	ctx := context.Background()
	ref := Ref{KindKey, hex.EncodeToString(sum[:])}
	read := m.Tick()
	batch := m.opt.Backend.Batch("key lookup")
	reply := pipeline.Declare(batch, "identity", text, "GET", copyKey(m.opt.Prefix, ref))
	raw, err := reply.Get(ctx)
	var row *Row
	switch {
	case err == nil:
		row, err = decodeFor(ref, raw)
	case errors.Is(err, pipeline.ErrNil):
		var rows []*Row
		if rows, err = m.fromSource(ctx, []Ref{ref}); err == nil {
			row = rows[0]
		}
	}
	l.trips = batch.Trips()
	m.land(sum, ref, l, row, read, err)
}

// land ends a search. What it found is in memory before anybody can start another one.
func (m *Memory) land(sum [sha256.Size]byte, ref Ref, l *Lookup, row *Row, read int64, err error) {
	now := m.opt.Now()
	m.mu.Lock()
	delete(m.flights, sum)
	if l.err = err; err == nil {
		e := newEntry(ref, now)
		e.take(row, read, now)
		e.invalid.Store(l.invalid.Load())
		m.unknown.drop(sum)
		if row == nil {
			m.unknown.add(sum, e)
		} else {
			m.keys.add(sum, e)
		}
		l.entry = e
	}
	m.mu.Unlock()
	close(l.done)
}

// fromSource asks the source for rows, all at once, and puts copies of what it has into Redis. The result runs parallel
// to refs; nil where there is none.
func (m *Memory) fromSource(ctx context.Context, refs []Ref) ([]*Row, error) {
	if m.opt.Source == nil {
		return make([]*Row, len(refs)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.opt.Backend.Deadline())
	defer cancel()
	rows, err := m.opt.Source.Find(ctx, refs)
	if err != nil {
		return nil, fmt.Errorf("identities from their source: %w", err)
	}
	if len(rows) != len(refs) {
		return nil, fmt.Errorf("the source answered with %d rows for %d", len(rows), len(refs))
	}
	w := m.opt.Deferred.Writes()
	defer w.Close()
	for i, row := range rows {
		if row == nil {
			continue
		}
		body, err := row.Encode()
		if err != nil {
			return nil, err
		}
		if row.Ref() != refs[i] {
			return nil, errOther
		}
		w.Eval("identity", copyScript, []string{copyKey(m.opt.Prefix, refs[i])}, row.Revision, body)
	}
	return rows, nil
}

// errOther marks a copy under another identity's key.
var errOther = errors.New("the row is that of another identity")

// decodeFor decodes the row that stands under a ref's key.
func decodeFor(ref Ref, raw string) (*Row, error) {
	row, err := Decode([]byte(raw))
	switch {
	case err != nil:
		return nil, fmt.Errorf("copy of a %s cannot be read: %w", ref.Kind, err)
	case row.Ref() != ref:
		return nil, errOther
	}
	return row, nil
}

func text(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", errors.New("reply is no string")
	}
	return s, nil
}
