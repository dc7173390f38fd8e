package governance

import (
	"strconv"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// refuseLimit is the refusal of a limit that did not hold the request, with the headers that describe it.
func (c *Call) refuseLimit(f limit.Failure) *Reply {
	if c.fresh.tentative {
		return undecided
	}
	if f.Kind == limit.FailBroken {
		if unsaid, ok := c.gate.outages.now(c.gate.now()); ok {
			c.gate.log.Error("request refused: a counter's key has the wrong type", "request_id", c.id,
				"scope", f.Scope.Kind, "id", f.Scope.ID, "more_since", unsaid)
		}
		return c.refuse(&refusal.Refusal{Reason: refusal.StoreDown})
	}
	r := &refusal.Refusal{
		ScopeKind: f.Scope.Kind, ScopeID: f.Scope.ID, Limit: string(f.Kind),
		Amount: f.Limit, Spent: f.Used, Reserved: f.Reserved,
	}
	switch f.Kind {
	case limit.FailBudget:
		r.Reason, r.Unit, r.Period = refusal.Budget, string(f.Budget.Unit), string(f.Budget.Per)
		r.Estimate = c.demand.Amount(f.Budget.Unit)
		if f.Budget.Per != config.Lifetime {
			r.ResetsAt = f.ResetsAt
		}
	case limit.FailParallel:
		r.Reason, r.Unit, r.Estimate, r.RetryAfter = refusal.Parallel, "requests", 1, time.Second
	case limit.FailRPM:
		r.Reason, r.Unit, r.Estimate, r.RetryAfter = refusal.RPM, "requests", 1, f.Wait
	case limit.FailTPM:
		r.Reason, r.Unit, r.RetryAfter = refusal.TPM, "tokens", f.Wait
		r.Estimate = c.demand.Least*c.demand.Choices + c.demand.Input
	}
	r.NoRetry = f.Wait < 0
	reply := c.refuse(r)
	reply.Header = append(reply.Header, limitHeaders(f)...)
	return reply
}

// limitHeaders describe the limit that refused.
func limitHeaders(f limit.Failure) [][2]string {
	left := max(f.Limit-f.Used-f.Reserved, 0)
	switch f.Kind {
	case limit.FailRPM:
		return rateHeaders("requests", f.Limit, left, f.Wait)
	case limit.FailTPM:
		return rateHeaders("tokens", f.Limit, left, f.Wait)
	case limit.FailBudget:
		return [][2]string{
			{"x-tollgate-budget-limit", amount(f.Budget.Unit, f.Limit)},
			{"x-tollgate-budget-remaining", amount(f.Budget.Unit, left)},
		}
	}
	return nil
}

func rateHeaders(unit string, limit, left int64, wait time.Duration) [][2]string {
	return [][2]string{
		{"x-ratelimit-limit-" + unit, strconv.FormatInt(limit, 10)},
		{"x-ratelimit-remaining-" + unit, strconv.FormatInt(left, 10)},
		{"x-ratelimit-reset-" + unit, duration(wait)},
	}
}
