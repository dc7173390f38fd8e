package refusal

import (
	"strings"
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	reset := time.Date(2026, 12, 1, 1, 0, 0, 0, time.FixedZone("", 3600))
	for _, tt := range []struct {
		name string
		in   Refusal
		want string
	}{
		{
			"a message of its own wins",
			Refusal{Reason: ModelDenied, Message: "team \"x\" may not use model \"y\""},
			`team "x" may not use model "y"`,
		},
		{
			"budget spent",
			Refusal{Reason: Budget, ScopeKind: "team", ScopeID: "search", Limit: "budget", Unit: "usd", Period: "month",
				Amount: 100e9, Spent: 100_020_000_000, Reserved: 500_000_000, Estimate: 1_200_000_000, ResetsAt: reset},
			`the monthly budget of team "search" is used up: the limit is $100, spent $100.02, reserved by requests in flight $0.5, ` +
				`this request needs up to $1.2; it resets at 2026-12-01T00:00:00Z`,
		},
		{
			"budget too small for the request, for ever",
			Refusal{Reason: Budget, ScopeKind: "team_member", ScopeID: "search/ada", Model: "gpt-4o", Limit: "budget", Unit: "tokens",
				Period: "lifetime", Amount: 1000, Spent: 900, Estimate: 200},
			`the lifetime budget of team member "search/ada" for model "gpt-4o" does not hold this request: the limit is 1000 tokens, ` +
				`spent 900 tokens, reserved by requests in flight 0 tokens, this request needs up to 200 tokens; it does not reset by itself`,
		},
		{
			"a shared budget shows no amounts",
			Refusal{Reason: Budget, ScopeKind: "global", Limit: "budget", Unit: "usd", Period: "month", Amount: 7e9, Spent: 8e9, ResetsAt: reset},
			`the monthly budget of the whole gateway is used up; it resets at 2026-12-01T00:00:00Z`,
		},
		{
			"rpm rounds the wait up",
			Refusal{Reason: RPM, ScopeKind: "key", ScopeID: "ci", Limit: "rpm", Unit: "requests", Amount: 60, Spent: 60, RetryAfter: 2100 * time.Millisecond},
			`key "ci" may use 60 requests per minute and has used 60; try again in 3 s`,
		},
		{
			"tpm counts reservations",
			Refusal{Reason: TPM, ScopeKind: "key", ScopeID: "ci", Limit: "tpm", Unit: "tokens", Amount: 1000, Spent: 500, Reserved: 400, Estimate: 200, RetryAfter: 5 * time.Second},
			`key "ci" may use 1000 tokens per minute and has used 900, this request needs up to 200; try again in 5 s`,
		},
		{
			"tpm that can never pass",
			Refusal{Reason: TPM, ScopeKind: "key", ScopeID: "ci", Limit: "tpm", Unit: "tokens", Amount: 1000, Estimate: 2000, NoRetry: true},
			`key "ci" may use 1000 tokens per minute and has used 0, this request needs up to 2000; it alone exceeds the limit, ask for fewer tokens`,
		},
		{
			"shared rate",
			Refusal{Reason: RPM, ScopeKind: "model", ScopeID: "claude-haiku", Limit: "rpm", Amount: 3000, Spent: 3000, RetryAfter: time.Second},
			`model "claude-haiku" is at its limit of requests per minute; try again in 1 s`,
		},
		{
			"parallel",
			Refusal{Reason: Parallel, ScopeKind: "key", ScopeID: "ci", Limit: "parallel", Amount: 4, Spent: 4},
			`key "ci" may have 4 requests in flight and has 4; try again in 1 s`,
		},
		{
			"parallel of a shared scope",
			Refusal{Reason: Parallel, ScopeKind: "provider", ScopeID: "openai", Limit: "parallel", Amount: 4, Spent: 4},
			`provider "openai" is at its limit of requests in flight; try again in 1 s`,
		},
		{
			"max_request in dollars",
			Refusal{Reason: MaxRequest, ScopeKind: "team", ScopeID: "search", Limit: "max_request", Unit: "usd", Amount: 2e9, Estimate: 3_500_000_000},
			`this request may need $3.5, team "search" allows at most $2 for one request`,
		},
		{
			"max_request in tokens",
			Refusal{Reason: MaxRequest, ScopeKind: "team", ScopeID: "search", Limit: "max_request", Unit: "input_tokens", Amount: 10, Estimate: 11},
			`this request may need 11 input tokens, team "search" allows at most 10 input tokens for one request`,
		},
		{
			"max_request of a shared scope",
			Refusal{Reason: MaxRequest, ScopeKind: "model", ScopeID: "m", Limit: "max_request", Unit: "usd", Amount: 2e9, Estimate: 3e9},
			`this request may need $3, more than model "m" allows for one request`,
		},
		{"store", Refusal{Reason: StoreDown}, "the gateway cannot check limits now; try again in 1 s"},
		{"a reason without words", Refusal{Reason: "odd"}, "the request was refused: odd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.in.Describe(); got != tt.want {
				t.Errorf("Describe()\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestEveryReasonHasWordsAndARow(t *testing.T) {
	t.Parallel()
	for _, reason := range allReasons {
		r := Refusal{Reason: reason}
		if strings.HasPrefix(r.Describe(), "the request was refused") {
			t.Errorf("%s: no words", reason)
		}
		if _, ok := kinds[reason]; !ok {
			t.Errorf("%s: no row in the table", reason)
		}
	}
	if len(kinds) != len(allReasons) {
		t.Errorf("the table has %d rows, there are %d reasons", len(kinds), len(allReasons))
	}
}

func TestPeriodWord(t *testing.T) {
	t.Parallel()
	for period, want := range map[string]string{
		"minute": "per-minute", "hour": "hourly", "day": "daily", "week": "weekly", "month": "monthly", "30d": "30-day", "lifetime": "lifetime",
	} {
		if got := periodWord(period); got != want {
			t.Errorf("periodWord(%q) = %q, want %q", period, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "gpt-4o", `"gpt-4o"`},
		{"control characters", "a\r\nb", `"a\r\nb"`},
		{"long", strings.Repeat("a", 1000), `"` + strings.Repeat("a", 128) + `..."`},
		{"cut inside a rune", strings.Repeat("a", 127) + "é", `"` + strings.Repeat("a", 127) + `..."`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Quote(tt.in); got != tt.want {
				t.Errorf("Quote = %s, want %s", got, tt.want)
			}
		})
	}
}
