package limit

import (
	"sync"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// remainder is what the last grant showed of a scope.
type remainder struct {
	at  time.Time
	use *Use
}

// share keeps a scope's limits while Redis is away: what the last grant left, divided by the live replicas. A scope
// that has never been granted anything has no share.
type share struct {
	mu       sync.Mutex
	minute   int64 // of the counts, since the epoch
	requests int64
	tokens   int64
	live     int64 // in flight in this process, whoever granted them
	nano     int64 // granted against the budgets since base
	total    int64 // tokens granted against the budgets since base
	count    int64 // requests granted against the budgets since base
	base     *remainder
}

// Policy says what passes while Redis is away, by kind of limit: "deny", "local" or "allow".
type Policy struct {
	Budgets, Rates string
}

// Local decides on a request without Redis. It names the first limit that does not let it pass; ok is true when all do.
// The grant is settled like any other, when Redis is back.
func (l *Limiter) Local(ask Ask, p Policy, replicas int64) (g *Grant, denied Failure, ok bool) {
	for i, s := range ask.Scopes {
		if f, ok := s.takeLocal(ask.Demand, p, max(replicas, 1), l.now()); !ok {
			for _, taken := range ask.Scopes[:i] {
				taken.giveBackLocal(ask.Demand)
			}
			return nil, f, false
		}
	}
	g = l.Unleased(ask.Demand, ask.Scopes)
	return g, Failure{}, true
}

// takeLocal compares and counts one scope.
func (s *Scope) takeLocal(d Demand, p Policy, replicas int64, now time.Time) (Failure, bool) {
	last := s.last.Load()
	h := &s.share
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.base != last {
		h.base, h.nano, h.total, h.count = last, 0, 0, 0
	}
	if m := now.Unix() / 60; h.minute != m {
		h.minute, h.requests, h.tokens = m, 0, 0
	}
	for i, b := range s.Budgets {
		if b.Soft || b.Audit || (b.Unit == config.USD && d.Free()) {
			continue
		}
		if !allowed(p.Budgets, last, func() bool {
			return h.used(b.Unit)+d.Amount(b.Unit) <= last.left(b, i, now)/replicas
		}) {
			return Failure{Scope: s, Kind: FailBudget, Budget: b, Limit: b.Amount}, false
		}
	}
	age := time.Duration(0)
	if last != nil {
		age = now.Sub(last.at)
	}
	for _, r := range []struct {
		kind  FailureKind
		limit *Limit
		used  func() int64 // shown by the last grant
		taken int64        // by this process since
		need  int64
	}{
		{FailParallel, s.Parallel, func() int64 { return 0 }, h.live, 1},
		{FailRPM, s.RPM, func() int64 { return faded(last.use.Requests, age) }, h.requests, 1},
		{FailTPM, s.TPM, func() int64 { return faded(last.use.Tokens, age) }, h.tokens, d.tokens(s.Counts, d.Want)},
	} {
		if r.limit == nil || r.limit.Audit {
			continue
		}
		if !allowed(p.Rates, last, func() bool { return r.taken+r.need <= (r.limit.Limit-r.used())/replicas }) {
			return Failure{Scope: s, Kind: r.kind, Limit: r.limit.Limit}, false
		}
	}
	h.requests++
	h.live++
	h.tokens += d.tokens(s.Counts, d.Want)
	h.nano += d.Amount(config.USD)
	h.total += d.Amount(config.Tokens)
	h.count++
	return Failure{}, true
}

// allowed applies a policy to one limit.
func allowed(policy string, last *remainder, fits func() bool) bool {
	switch policy {
	case "allow":
		return true
	case "local":
		return last != nil && fits()
	default:
		return false
	}
}

// left is what the last grant left of the scope's i-th budget; all of it once its period is over.
func (r *remainder) left(b *Budget, i int, now time.Time) int64 {
	u := r.use.Budgets[i]
	if !now.Before(u.ResetsAt) {
		return b.Amount
	}
	return b.Amount - u.Spent - u.Reserved
}

// faded is what of a window's count is still inside after a while.
func faded(n int64, age time.Duration) int64 {
	if age >= time.Minute {
		return 0
	}
	return n - n*int64(age)/int64(time.Minute)
}

func (h *share) used(u config.Unit) int64 {
	switch u {
	case config.USD:
		return h.nano
	case config.Tokens:
		return h.total
	default:
		return h.count
	}
}

// giveBackLocal undoes takeLocal, for a request that another scope refused.
func (s *Scope) giveBackLocal(d Demand) {
	h := &s.share
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests--
	h.live--
	h.tokens -= d.tokens(s.Counts, d.Want)
	h.nano -= d.Amount(config.USD)
	h.total -= d.Amount(config.Tokens)
	h.count--
}

// begin counts a request in that Redis granted: it holds its slot also when Redis goes away.
func (h *share) begin() {
	h.mu.Lock()
	h.live++
	h.mu.Unlock()
}

// end frees the slot of a request that ended.
func (h *share) end() {
	h.mu.Lock()
	h.live--
	h.mu.Unlock()
}

// Amount is the most that the demand can take of a budget.
func (d Demand) Amount(u config.Unit) int64 {
	switch u {
	case config.USD:
		return d.Fixed + mulDivUp(d.Want*d.Choices, d.PerMNano, 1_000_000)
	case config.Tokens:
		return d.Input + d.Want*d.Choices
	default:
		return 1
	}
}

// tokens is how many tokens a tpm limit counts of the demand with so much output a choice.
func (d Demand) tokens(how config.TPMCounts, output int64) int64 {
	return counted(how, usage.Usage{Input: d.Input, Output: output * d.Choices})
}
