package limit

import (
	"context"
	"fmt"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// group is what one script decides of an admission: on one server all of it, on a cluster what has one home.
type group struct {
	home       string
	scopes     []*Scope
	candidates []*Scope
	note       string // kept in the group's first lease
	reply      pipeline.Handle[any]

	// What came of it. No answer is that of a group that was not asked again, or whose grant was released.
	answer   answer
	r        reader
	err      error // of answerError
	now      int64 // Redis' clock, ms
	failures []Failure
	expired  []Lost
}

// answer is what one group answered: the first word of the script's reply.
type answer string

const (
	answerOK    answer = "ok"
	answerNo    answer = "no"
	answerBusy  answer = "busy"
	answerClock answer = "clock"
	answerStale answer = "stale"
	answerError answer = "error" // no answer, or one that makes no sense
)

// noHome is the hash tag of what belongs to nobody's scopes.
const noHome = "none"

// split divides an admission into groups, whose scopes keep their order. What keeps nothing in Redis goes along with
// any. The candidates are deployments of one model entry and so have one home.
func (l *Limiter) split(dst []group, scopes, candidates []*Scope) []group {
	home := homeOf(homeOf(noHome, candidates), scopes)
	if !l.clustered {
		return append(dst, group{home: home, scopes: scopes, candidates: candidates})
	}
	of := func(home string) *group {
		for i := range dst {
			if dst[i].home == home {
				return &dst[i]
			}
		}
		dst = append(dst, group{home: home})
		return &dst[len(dst)-1]
	}
	for _, s := range scopes {
		at := home
		if len(s.keys) > 0 {
			at = s.Home
		}
		g := of(at)
		g.scopes = append(g.scopes, s)
	}
	if len(candidates) > 0 {
		of(homeOf(home, candidates)).candidates = candidates
	}
	return dst
}

// homeOf is the home of the first of the scopes that keeps anything in Redis, or what stands in for it.
func homeOf(otherwise string, scopes []*Scope) string {
	for _, s := range scopes {
		if len(s.keys) > 0 {
			return s.Home
		}
	}
	return otherwise
}

// setNote gives the request's note to one group: one that keeps it for sure, because a scope of it has a lease, else
// the candidates'.
func setNote(groups []group, note string) {
	found := 0
	for i := range groups {
		if len(groups[i].candidates) > 0 {
			found = i
		}
	}
search:
	for i := range groups {
		for _, s := range groups[i].scopes {
			if s.leases() {
				found = i
				break search
			}
		}
	}
	if len(groups) > 0 {
		groups[found].note = note
	}
}

// scope is the scope that the group's script calls i, counted from 1 through scopes and candidates.
func (g *group) scope(i int64) *Scope {
	n := int64(len(g.scopes))
	if i <= n {
		return g.scopes[i-1]
	}
	return g.candidates[i-n-1]
}

// granted says that the group holds something of the request.
func (g *group) granted() bool { return g.answer == answerOK }

// refused says that limits of the group do not hold the request.
func (g *group) refused() bool { return g.answer == answerNo || g.answer == answerBusy }

// declare asks the group, for a lease of the given id at about the instant t.
func (a *Admission) declare(g *group, lease string, t time.Time) {
	l, ask := a.limiter, &a.ask
	n := len(g.scopes) + len(g.candidates)
	keys := make([]string, 0, 3*n)
	args := make([]any, 0, 15+24*n)
	choose := "first"
	if ask.Usage {
		choose = "usage"
	}
	args = append(args, l.instant(), lease, leaseTime.Milliseconds(), ask.Fixed, ask.PerMNano, ask.Want, ask.Least, ask.Choices,
		ask.Input, len(g.scopes), len(g.candidates), g.note, policy(ask.DenyBudgets), policy(ask.DenyRates), choose)
	for _, list := range [2][]*Scope{g.scopes, g.candidates} {
		for _, s := range list {
			keys = append(keys, s.keys...)
			args = s.appendArgs(args, t)
		}
	}
	g.reply = pipeline.Eval(a.batch, "limit", pipeline.Raw, admitScript, keys, args...)
	a.expect(g)
}

// receive takes the group's reply.
func (a *Admission) receive(ctx context.Context, g *group) {
	raw, err := g.reply.Get(ctx)
	if err != nil {
		g.answer, g.err = answerError, err
		return
	}
	if a.read(g, raw); g.answer == answerError {
		return
	}
	if g.answer == answerNo {
		for i := range g.failures {
			a.limiter.remember(g.failures[i])
		}
	}
	a.limiter.observe(g.now)
	a.lost = append(a.lost, g.expired...)
}

// read reads the group's reply.
func (a *Admission) read(g *group, raw any) {
	g.r = reader{raw}
	g.answer, g.failures, g.expired = answer(g.r.list(0).str()), nil, nil
	g.now = g.r.list(1).int()
	switch g.answer {
	case answerOK:
		g.now = g.r.list(2).int()
		g.expired = lost(g.r.list(9))
		if want, got := g.counted(), g.r.list(7).len(); got != want {
			g.answer, g.err = answerError, fmt.Errorf("admission script answered for %d scopes of %d", got, want)
		}
	case answerNo:
		g.failures, g.expired = g.refusals(g.r.list(2)), lost(g.r.list(3))
	case answerBusy:
		g.failures, g.expired = g.refusals(g.r.list(3)), lost(g.r.list(4))
	case answerClock, answerStale:
	default:
		g.answer, g.err = answerError, fmt.Errorf("admission script answered %q", g.answer)
	}
}

// counted is how many scopes a grant of the group counts: the chosen deployment too.
func (g *group) counted() int {
	if g.chosen() >= 0 {
		return len(g.scopes) + 1
	}
	return len(g.scopes)
}

// chosen is the index of the candidate that a grant chose; -1 when none was asked for.
func (g *group) chosen() int { return int(g.r.list(4).int()) - 1 }

// stale lists the scopes whose identities have a newer revision.
func (g *group) stale() []*Scope {
	r := g.r.list(2)
	list := make([]*Scope, r.len())
	for i := range list {
		list[i] = g.scope(r.list(i).int())
	}
	return list
}
