package governance

import (
	"strconv"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// appendLimits adds the headers that tell a client where it stands: the tightest rpm and tpm limit and the tightest
// budget of its own scopes, the one with the smallest share left. Deployments are not the caller's to see.
func appendLimits(list [][2]string, g *limit.Grant, now time.Time) [][2]string {
	var rpm, tpm, budget tightest
	for i := range g.Uses {
		u := &g.Uses[i]
		if u.Scope.Kind == limit.KindDeployment {
			continue
		}
		if l := u.Scope.RPM; l != nil {
			rpm.see(l.Limit, l.Limit-u.Requests, "", time.Time{})
		}
		if l := u.Scope.TPM; l != nil {
			tpm.see(l.Limit, l.Limit-u.Tokens, "", time.Time{})
		}
		for _, b := range u.Budgets {
			if !b.Budget.Soft {
				budget.see(b.Budget.Amount, b.Budget.Amount-b.Spent-b.Reserved, b.Budget.Unit, resets(b))
			}
		}
	}
	list = rpm.appendRate(list, "requests", g, now)
	list = tpm.appendRate(list, "tokens", g, now)
	return budget.appendBudget(list)
}

// resets is when a budget starts again; zero for one that does not.
func resets(b limit.BudgetUse) time.Time {
	if b.Budget.Per == config.Lifetime {
		return time.Time{}
	}
	return b.ResetsAt
}

// tightest is the limit with the smallest share left of those it has seen.
type tightest struct {
	found       bool
	limit, left int64
	unit        config.Unit
	resets      time.Time
}

func (t *tightest) see(limit, left int64, unit config.Unit, resets time.Time) {
	left = max(left, 0)
	// left/limit < t.left/t.limit, without dividing by a limit of zero; floats do, this is no money.
	if !t.found || float64(left)*float64(t.limit) < float64(t.left)*float64(limit) {
		*t = tightest{true, limit, left, unit, resets}
	}
}

func (t *tightest) appendRate(list [][2]string, unit string, g *limit.Grant, now time.Time) [][2]string {
	if !t.found {
		return list
	}
	return append(list,
		[2]string{"x-ratelimit-limit-" + unit, strconv.FormatInt(t.limit, 10)},
		[2]string{"x-ratelimit-remaining-" + unit, strconv.FormatInt(t.left, 10)},
		[2]string{"x-ratelimit-reset-" + unit, duration(g.WindowClears().Sub(now))},
	)
}

func (t *tightest) appendBudget(list [][2]string) [][2]string {
	if !t.found {
		return list
	}
	list = append(list,
		[2]string{"x-tollgate-budget-limit", amount(t.unit, t.limit)},
		[2]string{"x-tollgate-budget-remaining", amount(t.unit, t.left)},
	)
	if !t.resets.IsZero() {
		list = append(list, [2]string{"x-tollgate-budget-reset", t.resets.UTC().Format(time.RFC3339)})
	}
	return list
}

// amount is decimal dollars, tokens or requests.
func amount(u config.Unit, n int64) string {
	if u == config.USD {
		return refusal.FormatUSD(n)
	}
	return strconv.FormatInt(n, 10)
}

// duration writes a wait as OpenAI does: "12ms", "6m0s".
func duration(d time.Duration) string {
	return max(d, 0).Round(time.Millisecond).String()
}
