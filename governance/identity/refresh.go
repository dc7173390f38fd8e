package identity

import (
	"context"
	"errors"
	"slices"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// Refresh is identities being read again on a request's own batch.
type Refresh struct {
	memory  *Memory
	read    int64
	entries []*Entry
	replies []pipeline.Handle[string]
}

// Refresh declares the reading of entries; nil when there are none. On a cluster each is a command of its own slot.
func (m *Memory) Refresh(b *pipeline.Batch, entries []*Entry) *Refresh {
	if len(entries) == 0 {
		return nil
	}
	r := &Refresh{memory: m, read: m.Tick(), entries: slices.Clone(entries)}
	for _, e := range entries {
		r.replies = append(r.replies, pipeline.Declare(b, "identity", text, "GET", copyKey(m.opt.Prefix, e.ref)))
	}
	return r
}

// Tick is the tick at which the rows were asked for: for [Memory.Stale].
func (r *Refresh) Tick() int64 { return r.read }

// Get takes the replies into memory, sending the batch if that has not been done; whether anything differs shows in the
// entries' rows. Each reply is judged alone. The error wraps [pipeline.ErrUnavailable] when the only fault is that Redis
// did not answer; else it says which rows cannot be told.
func (r *Refresh) Get(ctx context.Context) error {
	var away, wrong error
	var missing []*Entry
	for i, e := range r.entries {
		raw, err := r.replies[i].Get(ctx)
		switch {
		case errors.Is(err, pipeline.ErrNil):
			missing = append(missing, e)
		case errors.Is(err, pipeline.ErrUnavailable):
			away = err
		case err == nil:
			err = r.memory.renew(e, raw, r.read)
			fallthrough
		default:
			wrong = errors.Join(wrong, err)
		}
	}
	if len(missing) > 0 {
		wrong = errors.Join(wrong, r.memory.absent(ctx, missing, r.read))
	}
	if wrong != nil {
		return wrong
	}
	return away
}

// renew takes a copy. Equal revisions are equal rows, so most copies need not be decoded.
func (m *Memory) renew(e *Entry, raw string, read int64) error {
	now := m.opt.Now()
	if n, ok := revisionOf(raw); ok {
		if row := e.Row(); row != nil && row.Revision == n {
			e.confirm(read, now)
			return nil
		}
	}
	row, err := decodeFor(e.ref, raw)
	if err != nil {
		return err
	}
	e.take(row, read, now)
	return nil
}

// absent judges identities that Redis has no copy of. A key that is nowhere is no key. Of what keys belong to, a row that
// came with a key stands until somebody says otherwise: its limits do not end because a copy was lost.
func (m *Memory) absent(ctx context.Context, missing []*Entry, read int64) error {
	refs := make([]Ref, len(missing))
	for i, e := range missing {
		refs[i] = e.ref
	}
	rows, err := m.fromSource(ctx, refs)
	if err != nil {
		return err
	}
	now := m.opt.Now()
	for i, e := range missing {
		if rows[i] == nil && e.ref.Kind != KindKey {
			e.confirm(read, now)
		} else {
			e.take(rows[i], read, now)
		}
	}
	return nil
}
