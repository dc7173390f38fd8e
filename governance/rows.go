package governance

import (
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// rowCaller is how a caller was made from rows of Redis.
type rowCaller struct {
	policy *policy
	joined identity.Joined
	fault  error // rows are missing, or contradict each other
}

// rowScope is what a row says as a scope; nothing for a tombstone, whose revision counts all the same.
func rowScope(row *identity.Row) config.Scope {
	switch d := row.Data.(type) {
	case *config.TeamMember:
		return d.Scope
	case *config.Project:
		return d.Scope
	case *config.User:
		return d.Scope
	case *config.Org:
		return d.Scope
	}
	return config.Scope{}
}

// fromRows is the caller of a key of Redis. It is made anew only when one of its rows has changed.
func (p *policy) fromRows(m *identity.Memory, e *identity.Entry) *caller {
	if c, ok := e.Made.Load().(*caller); ok && c.rows.policy == p && c.rows.joined.Current() {
		return c
	}
	made := &rowCaller{policy: p}
	made.joined, made.fault = m.Join(p.directory, e)
	c := &caller{}
	if j := &made.joined; j.Key != nil && made.fault == nil {
		rows := make(map[identity.Kind]*identity.Row, len(j.Rows))
		for _, row := range j.Rows {
			if row != nil {
				rows[row.Kind] = row
			}
		}
		c = p.newCaller(j.Key, rows)
	}
	c.rows = made
	e.Made.Store(c)
	return c
}

// refused is why a caller made from rows may not go on, whatever it asks for.
func (c *caller) refused() *refusal.Refusal {
	if c.rows == nil {
		return nil
	}
	j := &c.rows.joined
	switch {
	case c.rows.fault != nil:
		return &refusal.Refusal{Reason: refusal.StoreDown}
	case j.Deleted != nil:
		return &refusal.Refusal{
			Reason: refusal.Blocked, ScopeKind: string(j.Deleted.Kind), ScopeID: j.Deleted.ID,
			Message: "the " + string(j.Deleted.Kind) + " " + refusal.Quote(j.Deleted.ID) + " of the API key was deleted",
		}
	case j.Key == nil:
		return &refusal.Refusal{Reason: refusal.UnknownKey}
	}
	return nil
}
