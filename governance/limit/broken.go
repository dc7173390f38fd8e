package limit

// Broken are the counters that an admission could not read, because their keys have the wrong type, and passed over.
type Broken []brokenKey

type brokenKey struct {
	scope *Scope
	what  string // b, r or l
}

// broken reads what a grant of the group passed over.
func (g *group) broken() Broken {
	var list Broken
	r, chosen := g.r.list(10), g.chosen()
	for i := range r.len() {
		n := r.list(i).list(0).int()
		at := int(n) - 1 - len(g.scopes)
		if at < 0 || at == chosen { // a deployment that was not chosen is nobody's concern
			list = append(list, brokenKey{scope: g.scope(n), what: r.list(i).list(1).str()})
		}
	}
	return list
}

// of says whether a counter of the scope is broken.
func (b Broken) of(s *Scope) bool {
	for _, k := range b {
		if k.scope == s {
			return true
		}
	}
	return false
}

// policy is what stands in for the limits of a scope: that of the broken kinds; the script has compared the others.
func (b Broken) policy(s *Scope, p Policy) Policy {
	out := Policy{Budgets: "allow", Rates: "allow"}
	for _, k := range b {
		if k.scope != s {
			continue
		}
		if k.what != "r" { // the leases hold what the budgets reserve
			out.Budgets = p.Budgets
		}
		if k.what != "b" {
			out.Rates = p.Rates
		}
	}
	return out
}

// Passes says whether a grant that passed over broken counters stands: where the policy is "local", what the last good
// grant left decides. It names the first limit that does not hold.
func (l *Limiter) Passes(g *Grant, b Broken, p Policy, replicas int64) (denied Failure, ok bool) {
	for _, s := range g.scopes {
		if !b.of(s) {
			continue
		}
		s.share.end() // it is counted again with its amounts
		if f, ok := s.takeLocal(g.demand, b.policy(s, p), max(replicas, 1), l.now()); !ok {
			s.share.begin()
			return f, false
		}
	}
	return Failure{}, true
}
