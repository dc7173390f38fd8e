package identity

import (
	"context"
	"errors"
	"fmt"

	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// ErrSuperseded says that Redis holds a higher revision of the row already.
var ErrSuperseded = errors.New("a higher revision is in redis")

// Publisher puts an edit in force on every replica. Whoever edits a row writes it to its source first, and then here.
// It is safe for concurrent use; of concurrent edits of one row the highest revision stays.
type Publisher struct {
	Backend *pipeline.Backend
	Prefix  string // of all Redis keys
}

// Put writes a row's copy, raises the revision beside the row's counters and tells all replicas. It waits twice: a
// replica that is told, or answered 'stale', must find the copy that is meant. When it fails half-way, the same Put
// again does the rest.
//
// The error is [ErrSuperseded] when a higher revision is there, wraps [pipeline.ErrUnavailable] when Redis did not
// answer, and else says what is wrong with the row.
func (p *Publisher) Put(ctx context.Context, row *Row) error {
	body, err := row.Encode()
	if err != nil {
		return err
	}
	batch := p.Backend.Batch("publish")
	replaced := pipeline.Eval(batch, "identity", integer, copyScript, []string{copyKey(p.Prefix, row.Ref())}, row.Revision, body)
	switch n, err := replaced.Get(ctx); {
	case err != nil:
		return fmt.Errorf("copy of %s %q: %w", row.Kind, row.ID, err)
	case n < 0:
		return ErrSuperseded
	}
	var raised pipeline.Handle[int64]
	if row.Home != "" {
		key := limit.RevisionKey(p.Prefix, row.Home, string(row.Kind), row.ID)
		raised = pipeline.Eval(batch, "identity", integer, raiseScript, []string{key}, limit.RevisionField, row.Revision)
	}
	told := pipeline.Declare(batch, "identity", integer, "PUBLISH", channel(p.Prefix), message(row.Ref(), row.Revision))
	_, err = told.Get(ctx)
	if row.Home != "" {
		_, wrong := raised.Get(ctx)
		err = errors.Join(err, wrong)
	}
	if err != nil {
		return fmt.Errorf("edit of %s %q: %w", row.Kind, row.ID, err)
	}
	return nil
}

// Delete leaves a tombstone in place of a row: its kind, id, revision, home and secret count, the rest does not. The
// revision is that of the deletion, above that of the row.
func (p *Publisher) Delete(ctx context.Context, row *Row) error {
	return p.Put(ctx, &Row{
		Kind: row.Kind, ID: row.ID, Revision: row.Revision, Deleted: true, Home: row.Home, Secret: row.Secret,
	})
}

func integer(v any) (int64, error) {
	n, ok := v.(int64)
	if !ok {
		return 0, errors.New("reply is no integer")
	}
	return n, nil
}
