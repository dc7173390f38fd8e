package limit

import (
	"cmp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// The kinds of scopes, in the order in which a refusal of a budget is named.
const (
	KindKey        = "key"
	KindMember     = "member"
	KindTeam       = "team"
	KindProject    = "project"
	KindUser       = "user"
	KindOrg        = "org"
	KindDeployment = "deployment"
)

var kindRank = map[string]int{KindKey: 0, KindMember: 1, KindTeam: 2, KindProject: 3, KindUser: 4, KindOrg: 5, KindDeployment: 6}

// Scope is whoever limits belong to, made ready for the scripts. It is made once for a configuration and is safe for
// concurrent use.
type Scope struct {
	Kind, ID   string
	Home       string // the hash tag its keys share
	Budgets    []*Budget
	RPM        *Limit
	TPM        *Limit
	Parallel   *Limit
	Counts     config.TPMCounts
	MaxRequest *config.MaxRequest

	// Revision of the identity that the scope was made from; 0 for one of the configuration file.
	Revision int64

	has    string   // which of the hashes b and r and the leases l it keeps
	keys   []string // in that order
	static []any    // its arguments to admit.lua, but for the budgets

	rpmFull atomic.Pointer[memory]
	last    atomic.Pointer[remainder]
	share   share
}

// Limit is a rate or a number of slots.
type Limit struct {
	Limit int64
	Audit bool // counts and reports, never refuses
}

// Budget is an amount per period of one scope.
type Budget struct {
	Unit   config.Unit
	Amount int64 // nano-dollars, tokens or requests
	Per    config.Period
	Audit  bool
	Soft   bool

	loc    *time.Location
	field  string // its fields in the hash begin with this
	static [4]any
	span   atomic.Pointer[span]
	spent  atomic.Pointer[memory]
}

// Owner says whose limits a scope is made from.
type Owner struct {
	Kind, ID string
	Home     string
	// Revision of the identity; 0 for one of the configuration file, which is compared with nothing. An admission by a
	// revision below the one at [RevisionKey] is answered as stale.
	Revision int64
	Limits   config.Limits
	Enforce  config.Enforce // of the scope, already inherited; it stands for limits that say nothing
	Zone     *time.Location
	Order    int  // of a deployment
	Track    bool // keep the rate window even without limits, because a strategy compares it
	Bare     bool // make a scope even when nothing is counted
	// Revision of the identity; 0 for one of the configuration file, which is compared with nothing. An admission by an
	// older revision than the scope's hash holds (see [RevisionKey]) is refused as stale.
}

// NewScope makes a scope ready; it returns nil when nothing of it is counted.
func NewScope(prefix string, o Owner) *Scope {
	s := &Scope{Kind: o.Kind, ID: o.ID, Home: o.Home, Revision: o.Revision, Counts: o.Limits.TPMCounts, MaxRequest: o.Limits.MaxRequest}
	s.RPM = newLimit(o.Limits.RPM, o.Enforce)
	s.TPM = newLimit(o.Limits.TPM, o.Enforce)
	s.Parallel = newLimit(o.Limits.Parallel, o.Enforce)
	for _, b := range o.Limits.Budgets {
		if enforce := cmp.Or(b.Enforce, o.Enforce); enforce != config.Off {
			s.Budgets = append(s.Budgets, newBudget(b, enforce, o.Zone))
		}
	}
	revision := ""
	if o.Revision > 0 {
		revision = strconv.FormatInt(o.Revision, 10)
	}
	if len(s.Budgets) > 0 || revision != "" {
		s.keep("b", prefix)
	}
	if s.RPM != nil || s.TPM != nil || o.Track {
		s.keep("r", prefix)
	}
	if len(s.Budgets) > 0 || s.Parallel != nil {
		s.keep("l", prefix)
	}
	s.static = []any{
		s.has, o.Order, revision, s.RPM.arg(), s.TPM.arg(), countsArg(s.Counts), s.Parallel.arg(), len(s.Budgets),
	}
	if s.has == "" && s.MaxRequest == nil && !o.Bare {
		return nil
	}
	return s
}

func (s *Scope) keep(what, prefix string) {
	s.has += what
	s.keys = append(s.keys, keyOf(prefix, s.Home, what, s.Kind, s.ID))
}

func newLimit(r *config.Rate, above config.Enforce) *Limit {
	if r == nil {
		return nil
	}
	switch cmp.Or(r.Enforce, above) {
	case config.Off:
		return nil
	case config.Audit:
		return &Limit{Limit: r.Limit, Audit: true}
	default:
		return &Limit{Limit: r.Limit}
	}
}

// arg is the limit as admit.lua takes it.
func (l *Limit) arg() string {
	switch {
	case l == nil:
		return ""
	case l.Audit:
		return strconv.FormatInt(-1-l.Limit, 10)
	default:
		return strconv.FormatInt(l.Limit, 10)
	}
}

func newBudget(b config.Budget, enforce config.Enforce, loc *time.Location) *Budget {
	x := &Budget{Unit: b.Unit, Amount: b.Amount, Per: b.Per, Audit: enforce == config.Audit, Soft: b.Soft, loc: loc}
	unit := string(b.Unit[0]) // u, t or r
	x.field = unit + string(b.Per)
	mode := "b"
	switch {
	case x.Soft:
		// Counters of its own: a soft budget may stand beside a hard one of the same unit and period.
		x.field += "soft"
		mode = "s"
	case x.Audit:
		mode = "a"
	}
	x.static = [4]any{x.field, unit, mode, b.Amount}
	return x
}

// spanAt is the budget's period at t, from memory while that lasts.
func (b *Budget) spanAt(t time.Time) *span {
	ms := t.UnixMilli()
	if s := b.span.Load(); s != nil && ms >= s.start && ms < s.end {
		return s
	}
	s := spanAt(b.Per, b.loc, t)
	b.span.Store(s)
	return s
}

func countsArg(c config.TPMCounts) string {
	switch c {
	case config.CountUncached:
		return "u"
	case config.CountInput:
		return "i"
	case config.CountOutput:
		return "o"
	default:
		return "t"
	}
}

// HasBudget says whether the scope has a budget in dollars that can refuse: such a scope needs a price.
func (s *Scope) HasBudget() bool {
	for _, b := range s.Budgets {
		if b.Unit == config.USD && !b.Soft {
			return true
		}
	}
	return false
}

// leases says whether the scope's admissions have leases.
func (s *Scope) leases() bool { return strings.HasSuffix(s.has, "l") }

// appendArgs adds the scope's arguments to admit.lua at the instant t.
func (s *Scope) appendArgs(args []any, t time.Time) []any {
	args = append(args, s.static...)
	for _, b := range s.Budgets {
		args = append(args, b.static[:]...)
		args = append(args, b.spanAt(t).args[:]...)
	}
	return args
}

// Uncounted stands among the candidates for a deployment that counts nothing: it always has room.
func Uncounted(id string, order int) *Scope {
	return NewScope("", Owner{Kind: KindDeployment, ID: id, Order: order, Bare: true})
}
