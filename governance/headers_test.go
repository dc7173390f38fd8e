package governance

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/limit"
)

func scopeOf(kind string, l config.Limits) *limit.Scope {
	return limit.NewScope("tg", limit.Owner{Kind: kind, ID: "x", Home: "h", Limits: l, Zone: time.UTC})
}

func TestLimitHeadersShowTheTightest(t *testing.T) {
	t.Parallel()
	rate := func(n int64) *config.Rate { return &config.Rate{Limit: n} }
	resets := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	at := time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC)
	key := scopeOf(limit.KindKey, config.Limits{
		RPM: rate(10), TPM: rate(1000),
		Budgets: []config.Budget{{Unit: config.USD, Amount: 5_000_000_000, Per: config.Month}, {Unit: config.Tokens, Amount: 100, Per: config.Lifetime}},
	})
	team := scopeOf(limit.KindTeam, config.Limits{RPM: rate(100), Budgets: []config.Budget{{Unit: config.Requests, Amount: 4, Per: config.Day, Soft: true}}})
	deployment := scopeOf(limit.KindDeployment, config.Limits{RPM: rate(2)})
	g := &limit.Grant{At: at, Uses: []limit.Use{
		{Scope: key, Requests: 5, Tokens: 1200, Budgets: []limit.BudgetUse{
			{Budget: key.Budgets[0], Spent: 1_000_000_000, Reserved: 500_000_000, ResetsAt: resets},
			{Budget: key.Budgets[1], Spent: 99, ResetsAt: resets},
		}},
		{Scope: team, Requests: 98, Budgets: []limit.BudgetUse{{Budget: team.Budgets[0], Spent: 9, ResetsAt: resets}}}, // soft: never refuses
		{Scope: deployment, Requests: 2}, // not the caller's to see
	}}
	want := [][2]string{
		{"x-ratelimit-limit-requests", "100"}, {"x-ratelimit-remaining-requests", "2"}, {"x-ratelimit-reset-requests", "1m4s"},
		{"x-ratelimit-limit-tokens", "1000"}, {"x-ratelimit-remaining-tokens", "0"}, {"x-ratelimit-reset-tokens", "1m4s"},
		{"x-tollgate-budget-limit", "100"}, {"x-tollgate-budget-remaining", "1"}, // a lifetime budget does not reset
	}
	if d := cmp.Diff(want, appendLimits(nil, g, at)); d != "" {
		t.Error(d)
	}
	g.Uses[0].Budgets[0].Spent = 4_999_999_999
	got := appendLimits(nil, g, at)[6:]
	want = [][2]string{
		{"x-tollgate-budget-limit", "5"}, {"x-tollgate-budget-remaining", "0"}, {"x-tollgate-budget-reset", "2026-12-01T00:00:00Z"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
