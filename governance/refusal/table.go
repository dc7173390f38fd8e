package refusal

import "time"

// kind is how a class of refusals looks on the wire.
type kind struct {
	status    int
	openAI    string // error.type of the OpenAI and Azure dialects
	code      string // error.code of the same; empty is null
	anthropic string // error.type
	gemini    string // error.status, a google.rpc.Code
	bedrock   string // x-amzn-errortype
	noRetry   bool   // x-should-retry: false, which stops all official clients at the first try
	retry     bool   // retry-after, at least a second
	millis    bool   // retry-after-ms beside it
}

var (
	unauthenticated = kind{status: 401, openAI: "invalid_request_error", code: "invalid_api_key",
		anthropic: "authentication_error", gemini: "UNAUTHENTICATED", bedrock: "AccessDeniedException", noRetry: true}
	forbidden = kind{status: 403, openAI: "invalid_request_error", code: "model_not_allowed",
		anthropic: "permission_error", gemini: "PERMISSION_DENIED", bedrock: "AccessDeniedException", noRetry: true}
	notFound = kind{status: 404, openAI: "invalid_request_error", code: "model_not_found",
		anthropic: "not_found_error", gemini: "NOT_FOUND", bedrock: "ResourceNotFoundException", noRetry: true}
	invalid = kind{status: 400, openAI: "invalid_request_error",
		anthropic: "invalid_request_error", gemini: "INVALID_ARGUMENT", bedrock: "ValidationException"}
	rate = kind{status: 429, openAI: "requests", code: "rate_limit_exceeded",
		anthropic: "rate_limit_error", gemini: "RESOURCE_EXHAUSTED", bedrock: "ThrottlingException", retry: true, millis: true}
	unavailable = kind{status: 503, openAI: "server_error",
		anthropic: "overloaded_error", gemini: "UNAVAILABLE", bedrock: "ServiceUnavailableException", retry: true}
	internal = kind{status: 500, openAI: "server_error",
		anthropic: "api_error", gemini: "INTERNAL", bedrock: "InternalServerException"}
)

// kinds is the table of governance.md "Refusals".
var kinds = map[Reason]kind{
	NoCredential:    unauthenticated,
	Ambiguous:       unauthenticated,
	UnknownKey:      unauthenticated,
	Blocked:         unauthenticated,
	Expired:         unauthenticated,
	UnknownEndpoint: notFound.withCode("unknown_endpoint"),
	EndpointDenied:  forbidden,
	ModelDenied:     forbidden,
	UnknownModel:    notFound,
	Frozen:          forbidden.withCode("frozen"),
	Malformed:       invalid,
	TooLarge: {status: 413, openAI: "invalid_request_error",
		anthropic: "request_too_large", gemini: "INVALID_ARGUMENT", bedrock: "ValidationException"},
	Encoding: {status: 415, openAI: "invalid_request_error",
		anthropic: "invalid_request_error", gemini: "INVALID_ARGUMENT", bedrock: "ValidationException"},
	Unpriced:   forbidden.withCode("model_not_priced"),
	MaxRequest: invalid.withCode("request_too_expensive"),
	// No retry-after for budgets: clients sleep for hours or overflow their timers on a long one (wire.md 0.2). The
	// Bedrock type is the one AWS clients do not retry.
	Budget: {status: 429, openAI: "insufficient_quota", code: "insufficient_quota",
		anthropic: "rate_limit_error", gemini: "RESOURCE_EXHAUSTED", bedrock: "ServiceQuotaExceededException", noRetry: true},
	Parallel:     rate,
	RPM:          rate,
	TPM:          rate.withType("tokens"),
	NoDeployment: unavailable,
	DeploymentsBusy: {status: 429, openAI: "requests", code: "rate_limit_exceeded",
		anthropic: "rate_limit_error", gemini: "RESOURCE_EXHAUSTED", bedrock: "ThrottlingException", retry: true},
	StoreDown: unavailable,
	Draining:  unavailable,
	Internal:  internal,
}

func (k kind) withCode(code string) kind {
	k.code = code
	return k
}

func (k kind) withType(openAI string) kind {
	k.openAI = openAI
	return k
}

// kind is the row of the table; a reason without one is a fault of ours.
func (r *Refusal) kind() kind {
	k, ok := kinds[r.Reason]
	if !ok {
		k = internal
	}
	if r.NoRetry {
		k.noRetry = true
	}
	if k.noRetry {
		k.retry, k.millis = false, false
	}
	return k
}

// Status is the HTTP status of the refusal. budgetStatus is the setting errors.budget_status; 0 stands for 429.
func (r *Refusal) Status(budgetStatus int) int {
	if r.Reason == Budget && budgetStatus != 0 {
		return budgetStatus
	}
	return r.kind().status
}

// retryAfter is the wait to tell, if one is told: the true one, and a second when none is known.
func (r *Refusal) retryAfter() (time.Duration, bool) {
	if !r.kind().retry {
		return 0, false
	}
	if r.RetryAfter <= 0 {
		return time.Second, true
	}
	return r.RetryAfter, true
}

// wholeSeconds rounds up: a client that comes back too early is refused again.
func wholeSeconds(d time.Duration) int64 { return roundUp(d, time.Second) }

func roundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}
