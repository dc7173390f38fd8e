package governance

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tollgate-proxy/tollgate/governance/ledger"
	"github.com/tollgate-proxy/tollgate/governance/limit"
)

// lost writes the records of requests whose leases an admission found run out: the caller's, or nobody's when it came too
// late for its own.
func (g *Gate) lost(p *policy, by *caller, list []limit.Lost) {
	for _, l := range list {
		id, _, _ := strings.Cut(l.ID, "~") // of a request that was decided again: see leaseID
		g.log.Warn("lease ran out: its process died or was frozen", "request_id", id, "key", l.Note)
		r := ledger.Record{ID: id, Key: l.Note, Outcome: ledger.Lost, Reserved: l.Nano, EndedAt: g.limiter.Now()}
		if id, err := uuid.Parse(id); err == nil {
			r.AdmittedAt = time.Unix(id.Time().UnixTime()).UTC()
		}
		switch k := p.ids[l.Note]; {
		case k != nil:
			belong(&r, k.key)
		case by != nil && l.Note == by.key.ID:
			belong(&r, by.key)
		}
		g.append(&r)
	}
}
