package limit

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// Demand is what a request may cost at most.
type Demand struct {
	ID       string // of the request
	Note     string // kept with the lease, for whoever finds it run out: the key's id
	Fixed    int64  // nano-dollars that the input costs
	PerMNano int64  // nano-dollars per million output tokens
	Input    int64  // input tokens
	Want     int64  // output tokens a choice
	Least    int64  // the fewest that will do; equal to Want when the client named a cap
	Choices  int64
}

// Free says that the request costs nothing by price.
func (d Demand) Free() bool { return d.Fixed == 0 && d.PerMNano == 0 }

// Ask is one request's wish, by scope.
type Ask struct {
	Demand
	Scopes     []*Scope // key, team, ...; none is nil
	Candidates []*Scope // deployments by preference; empty when none of them counts anything
	// DenyBudgets and DenyRates refuse a request whose counters of that kind cannot be read; else they are passed over,
	// and Passes decides.
	DenyBudgets, DenyRates bool
	Usage                  bool // choose the candidate with the smallest share used; else the first that has room
}

// Admission is a verdict to come.
type Admission struct {
	limiter *Limiter
	ask     Ask
	batch   *pipeline.Batch
	asked   time.Time // by this process' clock
	room    [1]group
	groups  []group
	lost    []Lost // found by any group at any time
	late    lateness
}

// Reserve declares the admission on a request's batch: one script, or one for each group that lives in a slot of its own.
func (l *Limiter) Reserve(b *pipeline.Batch, ask Ask) *Admission {
	a := &Admission{limiter: l, ask: ask, batch: b, asked: time.Now()}
	a.groups = l.split(a.room[:0], ask.Scopes, ask.Candidates)
	setNote(a.groups, ask.Note)
	now := l.Now()
	for i := range a.groups {
		a.declare(&a.groups[i], ask.ID, now)
	}
	return a
}

// errClock says that Redis' clock and this process' are more than a period apart even after asking twice.
var errClock = errors.New("redis' clock is not in the budget's period")

// Get returns the verdict. The error says that Redis did not give one; it wraps [pipeline.ErrUnavailable] when Redis
// did not answer at all: what answers later is up to [Admission.Adopt] or [Admission.Abandon], one of which must be called
// after an error. The verdict then still names the leases that were found to have run out.
//
// On one server a refusal leaves nothing behind. Groups of a cluster can disagree: then what some have granted is
// released through d, and nobody waits for that. Groups that refuse only because of what other requests hold for the
// moment are asked again, in the one order that all requests keep, before the refusal is final: see [Admission.contend].
func (a *Admission) Get(ctx context.Context, d *pipeline.Deferred) (Verdict, error) {
	a.late.deferred = d
	for i := range a.groups {
		a.receive(ctx, &a.groups[i]) // the first sends them all
	}
	a.tellTime(ctx, a.groups, a.ask.ID)
	if a.contended() {
		a.contend(ctx, d)
	}
	return a.verdict(d)
}

// tellTime asks those groups again whose clock is in another period than this process thought; their reply said in
// which.
func (a *Admission) tellTime(ctx context.Context, groups []group, lease string) {
	var off []*group
	for i := range groups {
		if g := &groups[i]; g.answer == answerClock {
			off = append(off, g)
			a.declare(g, lease, time.UnixMilli(g.now))
		}
	}
	for _, g := range off {
		if a.receive(ctx, g); g.answer == answerClock {
			g.answer, g.err = answerError, errClock
		}
	}
}

// reader reads the nested lists of a script's reply. A shape that is not there reads as zero: the scripts are ours, and
// tests pin their replies.
type reader struct{ v any }

func (r reader) list(i int) reader {
	l, _ := r.v.([]any)
	if i >= len(l) {
		return reader{}
	}
	return reader{l[i]}
}

func (r reader) len() int {
	l, _ := r.v.([]any)
	return len(l)
}

func (r reader) str() string {
	s, _ := r.v.(string)
	return s
}

func (r reader) int() int64 {
	switch v := r.v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}
