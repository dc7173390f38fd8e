package governance

import (
	"context"
	"errors"
	"strconv"

	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
	"github.com/tollgate-proxy/tollgate/governance/usage"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// maxRepeats is how often a request is decided again because its identities changed under it.
const maxRepeats = 2

// freshness is what a call whose key comes from Redis knows of how true its identities are.
type freshness struct {
	lookup *identity.Lookup // of a key that memory lacked; nil when it did not
	entry  *identity.Entry  // of the key; nil for a key of the configuration file
	stale  []*identity.Entry
	// tentative says that the rows in use may have been replaced: what they refuse is not final.
	tentative bool
	since     int64 // the tick from which on what was read is fresh for this call; 0: none of it by itself
	repeats   int
	waited    int // trips of earlier decisions
}

// undecided stands for a reply while the call is to be decided again from fresh rows.
var undecided = &Reply{}

// identifyRow finds a key that the configuration file does not have. One that memory lacks is looked up from now on,
// while the body is arriving; stale rows are read again by Admit, and decide then.
func (c *Call) identifyRow(sum [32]byte) *Reply {
	rows := c.gate.rows
	if rows == nil {
		return c.refuse(&refusal.Refusal{Reason: refusal.UnknownKey})
	}
	entry := rows.Key(sum)
	if entry == nil {
		c.fresh.lookup = rows.Lookup(sum)
		return nil
	}
	c.fresh.entry = entry
	c.look()
	if c.fresh.tentative {
		return nil
	}
	return c.permitted()
}

// pending says that who calls is not known for certain yet.
func (c *Call) pending() bool { return c.fresh.lookup != nil || c.fresh.tentative }

// look makes the caller of what memory has now, and lists what of it is stale.
func (c *Call) look() {
	f := &c.fresh
	c.caller = c.policy.fromRows(c.gate.rows, f.entry)
	f.stale = c.gate.rows.Stale(f.stale[:0], c.caller.rows.joined.Entries, f.since)
	f.tentative = len(f.stale) > 0
}

// admitRow is Admit for a key that comes from Redis.
func (c *Call) admitRow(ctx context.Context, body []byte) (*Forward, *Reply) {
	f := &c.fresh
	if f.entry == nil {
		if reply := c.arrived(ctx); reply != nil {
			return nil, reply
		}
	}
	if f.entry == nil { // it passes without being known
		if reply := c.permitted(); reply != nil {
			return nil, reply
		}
		return c.attempt(ctx, body)
	}
	for {
		c.look()
		forward, reply := c.decideRow(ctx, body)
		if reply != undecided {
			return forward, reply
		}
		if f.repeats == maxRepeats {
			f.tentative = false
			return nil, c.refuse(&refusal.Refusal{Reason: refusal.StoreDown})
		}
		f.repeats++
		if reply := c.reread(ctx); reply != nil {
			return nil, reply
		}
	}
}

// Denied is the refusal of a call whose key was being looked up when it began and has been found wanting since: what is
// left of the body need not be read. It is nil while that is not known, and for a call that may go on. It does no I/O.
func (c *Call) Denied() *Reply {
	f := &c.fresh
	if f.lookup == nil || f.entry != nil || !f.lookup.Done() {
		return nil
	}
	entry, err := f.lookup.Wait(context.Background())
	if err != nil {
		return nil // Admit applies the failure policy
	}
	c.take(entry)
	if c.look(); f.tentative {
		return nil
	}
	return c.permitted()
}

// take uses the entry that was looked up.
func (c *Call) take(entry *identity.Entry) {
	f := &c.fresh
	f.entry, f.waited = entry, f.lookup.Trips()
	c.trips = f.waited
}

// arrived waits for the key that is being looked up. Without an answer, on_failure.unknown_key decides.
func (c *Call) arrived(ctx context.Context) *Reply {
	entry, err := c.fresh.lookup.Wait(ctx)
	if err == nil {
		c.take(entry)
		return nil
	}
	if c.policy.cfg.Redis.OnFailure.UnknownKey == "allow" {
		c.caller = c.policy.anonymous
		if unsaid, ok := c.gate.outages.now(c.gate.now()); ok {
			c.gate.log.Warn("request passes as anonymous: the key cannot be looked up", "request_id", c.id, "error", err, "more_since", unsaid)
		}
		return nil
	}
	return c.storeDown("the key cannot be looked up", err)
}

// storeDown refuses a call whose identity the stores do not tell.
func (c *Call) storeDown(what string, err error) *Reply {
	c.fresh.tentative = false
	if unsaid, ok := c.gate.outages.now(c.gate.now()); ok {
		c.gate.log.Warn("request refused: "+what, "request_id", c.id, "error", err, "more_since", unsaid)
	}
	return c.refuse(&refusal.Refusal{Reason: refusal.StoreDown})
}

// decideRow decides from the rows that look found.
func (c *Call) decideRow(ctx context.Context, body []byte) (*Forward, *Reply) {
	if fault := c.caller.rows.fault; fault != nil && !c.fresh.tentative {
		return nil, c.storeDown("its identities do not fit together", fault)
	}
	if reply := c.permitted(); reply != nil {
		return nil, reply
	}
	if c.endpoint.Name == usage.Models {
		if c.fresh.tentative {
			return nil, undecided
		}
		return nil, c.listModels()
	}
	return c.attempt(ctx, body)
}

// reread reads what is still stale, for a decision that no pipeline came with.
func (c *Call) reread(ctx context.Context) *Reply {
	c.look()
	f := &c.fresh
	if !f.tentative {
		return nil
	}
	batch := c.gate.backend.Batch(c.id)
	err := c.refresh(batch).Get(ctx)
	f.waited += batch.Trips()
	c.trips = f.waited
	if err != nil {
		return c.storeDown("its identities cannot be read again", err)
	}
	return nil
}

// refresh declares the reading of stale rows on a batch; nil when there are none.
func (c *Call) refresh(batch *pipeline.Batch) *identity.Refresh {
	r := c.gate.rows.Refresh(batch, c.fresh.stale)
	if r != nil && c.fresh.since == 0 {
		c.fresh.since = r.Tick()
	}
	return r
}

// stands judges an admission by the rows that were read again beside it. A reply says that it does not stand: undecided,
// or a refusal. A grant that does not stand is given back.
func (c *Call) stands(ctx context.Context, reread *identity.Refresh, v limit.Verdict, asked error) *Reply {
	f := &c.fresh
	if f.entry == nil {
		return nil
	}
	f.tentative = false
	var err error
	if reread != nil {
		err = reread.Get(ctx)
	}
	switch {
	case len(v.Stale) > 0:
		c.outdated(v.Stale)
		return undecided
	case !c.caller.rows.joined.Current():
		c.giveBack(v.Grant)
		return undecided
	case err == nil:
		return nil
	case !errors.Is(err, pipeline.ErrUnavailable), v.Grant == nil && asked == nil:
		c.giveBack(v.Grant)
		return c.storeDown("its identities cannot be read again", err)
	}
	return nil // the admission has compared the revisions, or the failure policy decides
}

// outdated makes the rows of scopes stale that the admission knows a higher revision of, but for those whose newer copy
// has just come.
func (c *Call) outdated(scopes []*limit.Scope) {
	j := &c.caller.rows.joined
	for _, s := range scopes {
		for i, row := range j.Rows {
			if row != nil && string(row.Kind) == s.Kind && row.ID == s.ID && j.Entries[i].Row() == row {
				c.gate.rows.Outdated(j.Entries[i])
				c.fresh.since = c.gate.rows.Tick()
			}
		}
	}
}

// giveBack settles a grant to nothing.
func (c *Call) giveBack(g *limit.Grant) {
	if g == nil {
		return
	}
	w := c.gate.deferred.Writes()
	g.Settle(w, limit.Ending{Void: true})
	w.Close()
}

// leaseID names the leases of this decision. Those of an earlier one may still be there, on their way to be given back.
func (c *Call) leaseID() string {
	if c.fresh.repeats == 0 {
		return c.id
	}
	return c.id + "~r" + strconv.Itoa(c.fresh.repeats)
}
