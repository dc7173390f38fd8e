package limit

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/usage"
	"github.com/tollgate-proxy/tollgate/pipeline"
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

	limiter *Limiter
	demand  Demand
	bucket  int64
	scopes  []*Scope // those that count, the chosen deployment last
	deploy  int      // index of the deployment in scopes; -1
	members []string // lease member by scope, "" without a lease
	periods [][]string
	leased  bool
	renewed time.Time // guarded by the holder
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

func (a *Admission) granted(r reader) (Verdict, error) {
	now := r.list(2).int()
	a.limiter.observe(now)
	chosen := int(r.list(4).int()) - 1
	scopes := a.ask.Scopes
	deploy := -1
	if chosen >= 0 {
		deploy = len(scopes)
		scopes = append(scopes[:deploy:deploy], a.ask.Candidates[chosen])
	}
	members, uses := r.list(6), r.list(7)
	if members.len() != len(scopes) || uses.len() != len(scopes) {
		return Verdict{}, fmt.Errorf("admission script answered for %d scopes of %d", uses.len(), len(scopes))
	}
	g := &Grant{
		ID: a.ask.ID, Output: r.list(1).int(), Reserved: r.list(3).int(), Chosen: chosen, At: time.UnixMilli(now),
		limiter: a.limiter, demand: a.ask.Demand, bucket: r.list(5).int(), scopes: scopes, deploy: deploy,
		members: make([]string, len(scopes)), periods: make([][]string, len(scopes)), Uses: make([]Use, len(scopes)),
	}
	for i, s := range scopes {
		g.members[i] = members.list(i).str()
		g.leased = g.leased || g.members[i] != ""
		g.Uses[i], g.periods[i] = readUse(s, uses.list(i))
		s.share.begin()
	}
	broken := a.broken(r.list(10), scopes)
	for i, s := range scopes {
		if !broken.of(s) {
			s.last.Store(&remainder{at: a.limiter.now(), use: &g.Uses[i]})
		}
	}
	a.limiter.holder.hold(g, a.limiter.now())
	return Verdict{Grant: g, Would: a.failures(r.list(8), now), Lost: lost(r.list(9)), Broken: broken}, nil
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
		ID: d.ID, Output: d.Want, Chosen: -1, At: now, limiter: l, demand: d, bucket: -1, scopes: scopes, deploy: -1,
		members: make([]string, len(scopes)), periods: make([][]string, len(scopes)),
	}
	for i, s := range scopes {
		for _, b := range s.Budgets {
			g.periods[i] = append(g.periods[i], b.spanAt(now).args[0].(string)) //nolint:forcetypeassert // spanAt put it there
		}
	}
	return g
}

// WindowClears is when the rate window will have forgotten this request.
func (g *Grant) WindowClears() time.Time {
	const bucket, kept = 5000, 13 // ms, and how many of them count; as in admit.lua
	return time.UnixMilli((g.At.UnixMilli()/bucket + kept) * bucket)
}

// Ending says what a request came to.
type Ending struct {
	Nano  int64 // what it cost
	Usage usage.Usage
	// Void takes everything back: the request never was.
	Void bool
	// Cached takes back what the deployment counted: the answer came from the cache.
	Cached bool
	// Record is the spend record to append; nil for none.
	Record []byte
}

// Settle declares the settlement on the request's deferred batch. The caller sees to it that it is called exactly once
// for each grant.
func (g *Grant) Settle(w *pipeline.Writes, e Ending) {
	l := g.limiter
	l.holder.release(g)
	for _, s := range g.scopes {
		s.share.end()
	}
	home := "none"
	if len(g.scopes) > 0 {
		home = g.scopes[0].Home
	}
	keys := make([]string, 1, 2+3*len(g.scopes))
	keys[0] = l.prefix + ":{" + home + "}:w:" + w.Writer()
	args := make([]any, 0, 5+8*len(g.scopes))
	args = append(args, g.At.UnixMilli(), g.bucket, len(g.scopes), string(e.Record), l.streamMax)
	if e.Record != nil {
		keys = append(keys, l.prefix+":spend:{"+shard(g.ID)+"}")
	}
	for i, s := range g.scopes {
		keys = append(keys, s.keys...)
		args = g.appendScope(args, i, s, e)
	}
	w.Once("limit", settleScript, keys, args...)
}

func (g *Grant) appendScope(args []any, i int, s *Scope, e Ending) []any {
	takeBack := e.Void || (e.Cached && i == g.deploy)
	requests, actual := int64(0), counted(s.Counts, e.Usage)
	if takeBack {
		requests, actual = -1, 0
	}
	args = append(args, s.has, g.members[i], requests, actual-g.demand.tokens(s.Counts, g.Output), len(s.Budgets))
	for j, b := range s.Budgets {
		args = append(args, b.field, g.periods[i][j], charge(b.Unit, e, takeBack))
	}
	return args
}

// charge is what an ending adds to a budget's spent amount.
func charge(unit config.Unit, e Ending, takeBack bool) int64 {
	switch {
	case takeBack:
		return 0
	case unit == config.USD:
		return e.Nano
	case unit == config.Tokens:
		return e.Usage.Total()
	default:
		return 1
	}
}

// counted is how many tokens a tpm limit counts of a usage.
func counted(how config.TPMCounts, u usage.Usage) int64 {
	switch how {
	case config.CountUncached:
		return u.Total() - u.CacheRead
	case config.CountInput:
		return u.Input
	case config.CountOutput:
		return u.Output
	default:
		return u.Total()
	}
}

// streams is the number of spend streams: records spread over the slots of a cluster.
const streams = 16

func shard(id string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return strconv.Itoa(int(h.Sum32() % streams))
}
