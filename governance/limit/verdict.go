package limit

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// Verdict is what an admission came to: a grant, the limits that refused, or the identities that are not what they were.
type Verdict struct {
	Grant    *Grant    // nil when refused
	Stale    []*Scope  // whose identities have a newer revision: nothing was charged, and no limit has decided
	Failures []Failure // that refused, the one to name first
	Busy     bool      // refused because every candidate deployment is at its limits; Failures are theirs
	Wait     time.Duration
	Would    []Failure // limits under audit that would have refused
	Lost     []Lost    // leases found to have run out
	Broken   Broken    // counters of the granted scopes that could not be read and were passed over
}

// FailureKind says which limit of a scope refused.
type FailureKind string

// The kinds, in the order in which they are named.
const (
	FailBudget   FailureKind = "budget"
	FailParallel FailureKind = "parallel"
	FailRPM      FailureKind = "rpm"
	FailTPM      FailureKind = "tpm"
	FailBroken   FailureKind = "broken" // a key of the wrong type
)

var failureKinds = map[string]FailureKind{"b": FailBudget, "p": FailParallel, "r": FailRPM, "t": FailTPM, "x": FailBroken}

var failureRank = map[FailureKind]int{FailBudget: 0, FailParallel: 1, FailRPM: 2, FailTPM: 3, FailBroken: 4}

// Failure is one limit that did not hold a request.
type Failure struct {
	Scope    *Scope
	Kind     FailureKind
	Budget   *Budget // of FailBudget
	Used     int64   // spent, in the window, or in flight
	Reserved int64   // of a budget
	Limit    int64
	ResetsAt time.Time     // of a budget; by Redis' clock
	Wait     time.Duration // until the request would pass; below zero: never
}

// passing says that other requests hold what is missing: their reservations or slots, which they will give back.
func (f Failure) passing() bool {
	switch f.Kind {
	case FailBudget:
		return !f.Spent() && f.Reserved > 0
	case FailParallel:
		return f.Limit > 0
	}
	return false
}

// Spent says that the budget itself is used up, whatever is reserved.
func (f Failure) Spent() bool { return f.Kind == FailBudget && f.Used >= f.Limit }

// Lost is a lease that ran out: its process died, or was frozen, before it settled.
type Lost struct {
	ID   string // of the request
	Note string // the key's id; "" in all leases of a request but the first, so that it is reported once
	Nano int64  // what it reserved in dollars, as far as this lease tells
}

// verdict puts together what the groups answered. Whatever is not a grant of all of them is a grant of none.
func (a *Admission) verdict(d *pipeline.Deferred) (Verdict, error) {
	v := Verdict{Lost: a.lost}
	var err error
	granted := true
	var busy *group
	for i := range a.groups {
		g := &a.groups[i]
		granted = granted && g.granted()
		switch g.answer {
		case answerError:
			if err == nil {
				err = g.err
			}
		case answerStale:
			v.Stale = append(v.Stale, g.stale()...)
		case answerNo:
			v.Failures = append(v.Failures, g.failures...)
		case answerBusy:
			busy = g
		}
	}
	if granted {
		return a.hold(v), nil
	}
	a.release(d, a.groups)
	switch {
	case len(v.Stale) > 0:
		// Before an error: no failure policy may let a request pass on an identity that was revoked.
		v.Failures = nil
		a.Abandon()
		return v, nil
	case err != nil:
		return Verdict{Lost: a.lost}, err
	case busy != nil && len(v.Failures) == 0:
		v.Busy, v.Wait, v.Failures = true, time.Duration(busy.r.list(2).int())*time.Millisecond, busy.failures
	}
	slices.SortStableFunc(v.Failures, inOrder)
	return v, nil
}

// refusals reads the failures of a reply.
func (g *group) refusals(r reader) []Failure {
	list := make([]Failure, 0, r.len())
	for i := range r.len() {
		f := r.list(i)
		x := Failure{
			Scope: g.scope(f.list(0).int()), Kind: failureKinds[f.list(1).str()],
			Used: f.list(3).int(), Reserved: f.list(4).int(), Limit: f.list(5).int(),
		}
		when := f.list(6).int()
		if x.Kind == FailBudget {
			x.Budget = x.Scope.Budgets[f.list(2).int()-1]
			x.ResetsAt = time.UnixMilli(when)
			x.Wait = time.Duration(when-g.now) * time.Millisecond
		} else {
			x.Wait = time.Duration(when) * time.Millisecond
		}
		list = append(list, x)
	}
	return list
}

// inOrder sorts failures as they are to be named: budgets by scope and the shorter period first, then parallel, rpm,
// tpm.
func inOrder(a, b Failure) int {
	if c := cmp.Compare(failureRank[a.Kind], failureRank[b.Kind]); c != 0 {
		return c
	}
	if c := cmp.Compare(kindRank[a.Scope.Kind], kindRank[b.Scope.Kind]); c != 0 || a.Budget == nil {
		return c
	}
	return cmp.Compare(periodRank(a.Budget.Per), periodRank(b.Budget.Per))
}

func lost(r reader) []Lost {
	var list []Lost
	for i := range r.len() {
		id, rest, _ := strings.Cut(r.list(i).str(), "|")
		note, held, _ := strings.Cut(rest, "|")
		if note != "" {
			list = append(list, Lost{ID: strings.TrimSuffix(id, again), Note: note, Nano: dollars(held)})
		}
	}
	return list
}

// dollars is the amount of the first budget in dollars that a lease holds something of.
func dollars(held string) int64 {
	for part := range strings.SplitSeq(held, "|") {
		if strings.HasPrefix(part, "u") { // the unit, in the name of the counter's field
			n, _ := strconv.ParseInt(part[strings.LastIndexByte(part, ':')+1:], 10, 64)
			return n
		}
	}
	return 0
}
