package refusal

import "time"

// Reason is the stable name of why a request was refused: the metric label and the key of the rendering table.
type Reason string

// The reasons, in the order in which they are named when several hold (governance.md).
const (
	NoCredential    Reason = "no_credential"
	Ambiguous       Reason = "ambiguous_credential"
	UnknownKey      Reason = "unknown_key"
	Blocked         Reason = "blocked"
	Expired         Reason = "expired"
	UnknownEndpoint Reason = "unknown_endpoint"
	EndpointDenied  Reason = "endpoint_not_allowed"
	ModelDenied     Reason = "model_not_allowed"
	UnknownModel    Reason = "model_not_found"
	Frozen          Reason = "frozen"
	Malformed       Reason = "malformed"
	TooLarge        Reason = "too_large"
	Encoding        Reason = "content_encoding"
	Unpriced        Reason = "unpriced"
	MaxRequest      Reason = "max_request"
	Budget          Reason = "budget"
	Parallel        Reason = "parallel"
	RPM             Reason = "rpm"
	TPM             Reason = "tpm"
	NoDeployment    Reason = "no_deployment"
	DeploymentsBusy Reason = "deployments_at_limit"
	StoreDown       Reason = "store_unreachable"
	Draining        Reason = "draining"
	Internal        Reason = "internal"
)

// Refusal is one request not let through. It is a value about the caller's own scopes: it must never hold a secret,
// another tenant's name, or amounts of a scope that tenants share.
type Refusal struct {
	Reason  Reason
	Message string // shown to the caller; empty for limits, whose words Describe makes from the fields below
	Param   string // the request field at fault, if one is

	// Of the limit that refused; zero values when no limit did.
	ScopeKind string // "key", "team", ...
	ScopeID   string
	Model     string // of a per-model limit; empty for a limit in general
	Limit     string // "budget", "rpm", "tpm", "parallel", "max_request"
	Unit      string // of Amount, Spent, Reserved, Estimate: "usd" (nano-dollars), "tokens", "requests"; of max_request also "input_tokens", "output_tokens"
	Period    string // of a budget
	Amount    int64
	Spent     int64
	Reserved  int64
	Estimate  int64
	ResetsAt  time.Time
	// RetryAfter is the true wait until the same request could pass; 0 sends no retry-after.
	RetryAfter time.Duration
	// NoRetry sends x-should-retry: false also where the reason alone would not (a request larger than its tpm limit).
	NoRetry bool
}

// Error makes a Refusal an error, for logs.
func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Describe() }

// Shared reports whether tenants share the scope that refused, so that its amounts are nobody's to see.
func (r *Refusal) Shared() bool {
	switch r.ScopeKind {
	case "global", "provider", "model", "deployment":
		return true
	}
	return false
}
