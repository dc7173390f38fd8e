package limit

import (
	"sync"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// holder keeps the leased grants of this process until they are settled.
type holder struct {
	mu     sync.Mutex
	grants map[*Grant]struct{}
}

func (h *holder) hold(g *Grant, now time.Time) {
	if !g.leased {
		return
	}
	h.mu.Lock()
	g.renewed = now
	h.grants[g] = struct{}{}
	h.mu.Unlock()
}

func (h *holder) release(g *Grant) {
	if !g.leased {
		return
	}
	h.mu.Lock()
	delete(h.grants, g)
	h.mu.Unlock()
}

// InFlight is how many leased requests this process holds.
func (l *Limiter) InFlight() int {
	l.holder.mu.Lock()
	defer l.holder.mu.Unlock()
	return len(l.holder.grants)
}

// Renew renews the leases that are due, or all of them after a reconnect, through the same queue as the settlements.
// Call it every second.
//
// The holder's lock is kept until the renewals are queued: a grant leaves the holder before its settlement is queued,
// so no renewal overtakes the settlement of its request and puts its lease back for good.
func (l *Limiter) Renew(d *pipeline.Deferred, all bool) {
	now := l.now()
	w := d.Writes()
	l.holder.mu.Lock()
	defer l.holder.mu.Unlock()
	for g := range l.holder.grants {
		if all || now.Sub(g.renewed) >= renewEvery {
			g.renewed = now
			g.renew(w)
		}
	}
	w.Close()
}

// renew declares the renewal of the grant's leases, one script a portion.
func (g *Grant) renew(w *pipeline.Writes) {
	for i := range g.portions {
		g.renewPortion(w, &g.portions[i])
	}
}

func (g *Grant) renewPortion(w *pipeline.Writes, p *portion) {
	var keys []string
	args := []any{g.limiter.instant(), leaseTime.Milliseconds(), 0}
	n := 0
	for i := p.from; i < p.to; i++ {
		s := g.scopes[i]
		if g.members[i] == "" {
			continue
		}
		n++
		has := ""
		if len(s.Budgets) > 0 {
			has = "b"
			keys = append(keys, s.keys[0]) // b comes first
		}
		keys = append(keys, s.keys[len(s.keys)-1]) // l comes last
		args = append(args, has, g.members[i])
	}
	if n == 0 {
		return
	}
	args[2] = n
	w.Eval("limit", renewScript, keys, args...)
}
