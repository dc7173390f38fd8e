package limit

import (
	"context"
	"errors"
	"fmt"
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
	reply   pipeline.Handle[any]
}

// Reserve declares the admission on a request's batch.
func (l *Limiter) Reserve(b *pipeline.Batch, ask Ask) *Admission {
	a := &Admission{limiter: l, ask: ask, batch: b}
	a.declare(l.Now())
	return a
}

func (a *Admission) declare(t time.Time) {
	l, ask := a.limiter, a.ask
	keys := make([]string, 0, 3*(len(ask.Scopes)+len(ask.Candidates)))
	args := make([]any, 0, 15+24*(len(ask.Scopes)+len(ask.Candidates)))
	choose := "first"
	if ask.Usage {
		choose = "usage"
	}
	args = append(args, l.instant(), ask.ID, leaseTime.Milliseconds(), ask.Fixed, ask.PerMNano, ask.Want, ask.Least, ask.Choices,
		ask.Input, len(ask.Scopes), len(ask.Candidates), ask.Note, policy(ask.DenyBudgets), policy(ask.DenyRates), choose)
	for _, list := range [2][]*Scope{ask.Scopes, ask.Candidates} {
		for _, s := range list {
			keys = append(keys, s.keys...)
			args = s.appendArgs(args, t)
		}
	}
	a.reply = pipeline.Eval(a.batch, "limit", pipeline.Raw, admitScript, keys, args...)
}

// errClock says that Redis' clock and this process' are more than a period apart even after asking twice.
var errClock = errors.New("redis' clock is not in the budget's period")

// Get returns the verdict. The error says that Redis did not give one; it wraps [pipeline.ErrUnavailable] when Redis
// did not answer at all.
func (a *Admission) Get(ctx context.Context) (Verdict, error) {
	v, err := a.get(ctx)
	if !errors.Is(err, errClock) {
		return v, err
	}
	a.declare(a.limiter.Now()) // the reply has set the clock right
	return a.get(ctx)
}

func (a *Admission) get(ctx context.Context) (Verdict, error) {
	raw, err := a.reply.Get(ctx)
	if err != nil {
		return Verdict{}, err
	}
	r := reader{raw}
	kind := r.list(0).str()
	switch kind {
	case "clock":
		a.limiter.observe(r.list(1).int())
		return Verdict{}, errClock
	case "ok":
		return a.granted(r)
	case "no", "busy":
		return a.refused(kind, r)
	}
	return Verdict{}, fmt.Errorf("admission script answered %q", kind)
}

// scope is the scope that the script calls i, counted from 1 through scopes and candidates.
func (a *Admission) scope(i int64) *Scope {
	n := int64(len(a.ask.Scopes))
	if i <= n {
		return a.ask.Scopes[i-1]
	}
	return a.ask.Candidates[i-n-1]
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
