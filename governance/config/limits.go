package config

import "time"

// Enforce says whether a limit refuses. The zero value means: as the scope above says.
type Enforce string

// The values of Enforce.
const (
	Inherit Enforce = ""
	Block   Enforce = "block"
	Audit   Enforce = "audit" // count, let pass, report what would have been refused
	Off     Enforce = "off"   // neither count nor compare
)

// Unit is what a budget counts.
type Unit string

// The units of a budget.
const (
	USD      Unit = "usd" // Amount is nano-dollars
	Tokens   Unit = "tokens"
	Requests Unit = "requests"
)

// Period is the calendar period of a budget: minute, hour, day, week, month, 30d or lifetime.
type Period string

// The periods of a budget.
const (
	Minute   Period = "minute"
	Hour     Period = "hour"
	Day      Period = "day"
	Week     Period = "week"
	Month    Period = "month"
	Days30   Period = "30d"
	Lifetime Period = "lifetime"
)

// Budget is an amount per period.
type Budget struct {
	Unit    Unit
	Amount  int64 // nano-dollars, tokens or requests; below 2^53
	Per     Period
	Enforce Enforce
	Soft    bool // never refuses
	Alert   []int
	Raises  []Raise
}

// Raise lifts a budget until an instant.
type Raise struct {
	Amount int64
	Until  time.Time
	Note   string
}

// Rate is a limit in requests a minute, tokens a minute or requests in flight. Nil means no limit; 0 admits nothing.
type Rate struct {
	Limit   int64
	Enforce Enforce
}

// TPMCounts says which tokens a tpm limit counts.
type TPMCounts string

// The values of TPMCounts; the default is CountTotal.
const (
	CountTotal    TPMCounts = "total"
	CountUncached TPMCounts = "uncached"
	CountInput    TPMCounts = "input"
	CountOutput   TPMCounts = "output"
)

// Limits are the limits of one scope.
type Limits struct {
	Budgets    []Budget
	RPM        *Rate
	TPM        *Rate
	TPMCounts  TPMCounts
	Parallel   *Rate
	MaxRequest *MaxRequest
	PerModel   map[string]Limits
}

// MaxRequest refuses a single request by its estimate. A nil field is no limit.
type MaxRequest struct {
	USD          *Nano
	InputTokens  *int64
	OutputTokens *int64
}
