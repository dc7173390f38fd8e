package limit

import (
	"slices"
	"time"
)

// Grant is an admission that must be settled exactly once. It belongs to its request; only the renewal of its leases
// touches it from outside, and reads what never changes.
type Grant struct {
	ID       string
	Output   int64 // output tokens a choice that are reserved
	Reserved int64 // nano-dollars
	Chosen   int   // index of the candidate; -1 when none was asked for
	At       time.Time
	Uses     []Use // of the scopes as they are now, this request included

	limiter  *Limiter
	demand   Demand
	portions []portion
	scopes   []*Scope // those that count, the chosen deployment among them, portion by portion
	deploy   int      // index of the deployment in scopes; -1
	members  []string // lease member by scope, "" without a lease
	periods  [][]string
	leased   bool
	renewed  time.Time // guarded by the holder
	awaited  *lateness // of an admission that the request went on without; nil for others
	tardy    bool      // it came when the request had gone on
}

// portion is what one script granted of a request: the scopes from one index up to another. Every server has a clock of
// its own, and may have room for another number of tokens.
type portion struct {
	home     string
	at       int64 // instant of the admission by that server's clock, ms
	bucket   int64 // of the rate windows
	output   int64 // output tokens a choice that it reserved
	from, to int
}

// Use is how far a scope's limits are used.
type Use struct {
	Scope    *Scope
	Requests int64 // in the window
	Tokens   int64 // in the window
	Live     int64 // in flight
	Budgets  []BudgetUse
}

// BudgetUse is how far one budget is used.
type BudgetUse struct {
	Budget          *Budget
	Spent, Reserved int64
	ResetsAt        time.Time
}

// grant makes a grant of what those of the groups that granted hold. It is nobody's yet.
func (a *Admission) grant(groups []group) *Grant {
	n := 0
	for i := range groups {
		n += len(groups[i].scopes) + 1
	}
	g := &Grant{
		ID: a.ask.ID, Chosen: -1, limiter: a.limiter, demand: a.ask.Demand, deploy: -1, portions: make([]portion, 0, len(groups)),
		scopes: make([]*Scope, 0, n), members: make([]string, 0, n), periods: make([][]string, 0, n), Uses: make([]Use, 0, n),
	}
	for i := range groups {
		if groups[i].granted() {
			g.add(&groups[i])
		}
	}
	return g
}

// add adds what a group granted. The request may use what the least generous of the groups allows.
func (g *Grant) add(of *group) {
	r := of.r
	p := portion{home: of.home, output: r.list(1).int(), at: of.now, bucket: r.list(5).int(), from: len(g.scopes)}
	g.scopes = append(g.scopes, of.scopes...)
	if chosen := of.chosen(); chosen >= 0 {
		g.Chosen, g.deploy = chosen, len(g.scopes)
		g.scopes = append(g.scopes, of.candidates[chosen])
	}
	p.to = len(g.scopes)
	for i, s := range g.scopes[p.from:] {
		member := r.list(6).list(i).str()
		use, periods := readUse(s, r.list(7).list(i))
		g.leased = g.leased || member != ""
		g.members, g.Uses, g.periods = append(g.members, member), append(g.Uses, use), append(g.periods, periods)
	}
	reserved := r.list(3).int()
	if len(g.portions) == 0 {
		g.Output, g.Reserved, g.At = p.output, reserved, time.UnixMilli(p.at)
	}
	g.Output, g.Reserved = min(g.Output, p.output), min(g.Reserved, reserved)
	g.portions = append(g.portions, p)
}

// hold gives the request its grant: all of the groups have granted.
func (a *Admission) hold(v Verdict) Verdict {
	l, g := a.limiter, a.grant(a.groups)
	for i := range a.groups {
		of := &a.groups[i]
		v.Would = append(v.Would, of.refusals(of.r.list(8))...)
		v.Broken = append(v.Broken, of.broken()...)
	}
	slices.SortStableFunc(v.Would, inOrder)
	for i, s := range g.scopes {
		s.share.begin()
		if !v.Broken.of(s) {
			s.last.Store(&remainder{at: l.now(), use: &g.Uses[i]})
		}
	}
	l.holder.hold(g, l.now())
	v.Grant = g
	return v
}

func readUse(s *Scope, r reader) (Use, []string) {
	u := Use{
		Scope: s, Requests: r.list(0).int(), Tokens: r.list(1).int(), Live: r.list(2).int(),
		Budgets: make([]BudgetUse, 0, len(s.Budgets)),
	}
	periods := make([]string, 0, len(s.Budgets))
	for i, b := range s.Budgets {
		at := 3 + 4*i
		u.Budgets = append(u.Budgets, BudgetUse{
			Budget: b, Spent: r.list(at).int(), Reserved: r.list(at + 1).int(), ResetsAt: time.UnixMilli(r.list(at + 3).int()),
		})
		periods = append(periods, r.list(at+2).str())
	}
	return u, periods
}

// Unleased is the grant of a request that passes without an admission: because nothing of it is counted, or because
// Redis is away and the policy lets it. It is settled like any other.
func (l *Limiter) Unleased(d Demand, scopes []*Scope) *Grant {
	now := l.Now()
	g := &Grant{
		ID: d.ID, Output: d.Want, Chosen: -1, At: now, limiter: l, demand: d, deploy: -1,
		scopes: make([]*Scope, 0, len(scopes)), members: make([]string, len(scopes)), periods: make([][]string, 0, len(scopes)),
	}
	for _, of := range l.split(nil, scopes, nil) {
		p := portion{home: of.home, at: now.UnixMilli(), bucket: -1, output: d.Want, from: len(g.scopes)}
		g.scopes = append(g.scopes, of.scopes...)
		p.to = len(g.scopes)
		g.portions = append(g.portions, p)
	}
	for _, s := range g.scopes {
		periods := make([]string, 0, len(s.Budgets))
		for _, b := range s.Budgets {
			periods = append(periods, b.spanAt(now).id)
		}
		g.periods = append(g.periods, periods)
	}
	return g
}

// WindowClears is when the rate window will have forgotten this request.
func (g *Grant) WindowClears() time.Time {
	const bucket, kept = 5000, 13 // ms, and how many of them count; as in admit.lua
	return time.UnixMilli((g.At.UnixMilli()/bucket + kept) * bucket)
}
