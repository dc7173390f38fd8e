package limit

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verdict is what an admission came to: a grant, or the limits that refused.
type Verdict struct {
	Grant    *Grant    // nil when refused
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

// Spent says that the budget itself is used up, whatever is reserved.
func (f Failure) Spent() bool { return f.Kind == FailBudget && f.Used >= f.Limit }

// Lost is a lease that ran out: its process died, or was frozen, before it settled.
type Lost struct {
	ID   string // of the request
	Note string // the key's id; "" in all leases of a request but the first, so that it is reported once
	Nano int64  // what it reserved in dollars, as far as this lease tells
}

func (a *Admission) refused(kind string, r reader) (Verdict, error) {
	now := r.list(1).int()
	a.limiter.observe(now)
	v := Verdict{Busy: kind == "busy"}
	at := 2
	if v.Busy {
		v.Wait = time.Duration(r.list(2).int()) * time.Millisecond
		at = 3
	}
	v.Failures = a.failures(r.list(at), now)
	v.Lost = lost(r.list(at + 1))
	if !v.Busy {
		for i := range v.Failures {
			a.limiter.remember(v.Failures[i])
		}
	}
	return v, nil
}

func (a *Admission) failures(r reader, now int64) []Failure {
	list := make([]Failure, 0, r.len())
	for i := range r.len() {
		f := r.list(i)
		x := Failure{
			Scope: a.scope(f.list(0).int()), Kind: failureKinds[f.list(1).str()],
			Used: f.list(3).int(), Reserved: f.list(4).int(), Limit: f.list(5).int(),
		}
		when := f.list(6).int()
		if x.Kind == FailBudget {
			x.Budget = x.Scope.Budgets[f.list(2).int()-1]
			x.ResetsAt = time.UnixMilli(when)
			x.Wait = time.Duration(when-now) * time.Millisecond
		} else {
			x.Wait = time.Duration(when) * time.Millisecond
		}
		list = append(list, x)
	}
	slices.SortStableFunc(list, inOrder)
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
			list = append(list, Lost{ID: id, Note: note, Nano: dollars(held)})
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
