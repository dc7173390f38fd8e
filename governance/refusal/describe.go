package refusal

import (
	"strconv"
	"strings"
	"time"
)

// Describe is the message of a refusal: Message when one is set, else words made from the fields of the limit. It
// names the scope, the limit, what was used and when it resets; of a scope that tenants share it gives no amounts.
func (r *Refusal) Describe() string {
	if r.Message != "" {
		return r.Message
	}
	switch r.Reason {
	case Budget:
		return r.describeBudget()
	case RPM, TPM:
		return r.describeRate()
	case Parallel:
		return r.describeParallel()
	case MaxRequest:
		return r.describeMaxRequest()
	}
	if words, ok := plainWords[r.Reason]; ok {
		return words + r.retryWords()
	}
	return "the request was refused: " + string(r.Reason)
}

// plainWords are the messages of the reasons that need no more than their name.
var plainWords = map[Reason]string{
	NoCredential:    "no API key was given; send it as \"Authorization: Bearer <key>\"",
	Ambiguous:       "the request carries more than one API key; send exactly one",
	UnknownKey:      "the API key is not valid",
	Blocked:         "the API key is blocked",
	Expired:         "the API key has expired",
	UnknownEndpoint: "this path is not served here",
	EndpointDenied:  "this endpoint is not allowed for the API key",
	ModelDenied:     "this model is not allowed for the API key",
	UnknownModel:    "this model does not exist",
	Frozen:          "requests are frozen by an administrator",
	Malformed:       "the request body is malformed",
	TooLarge:        "the request body is too large",
	Encoding:        "the content encoding of the request body is not supported",
	Unpriced:        "this model has no price, and a budget applies to the request",
	NoDeployment:    "no deployment can serve this model now",
	DeploymentsBusy: "all deployments of this model are at their limits",
	StoreDown:       "the gateway cannot check limits now",
	Draining:        "the gateway is shutting down",
	Internal:        "the gateway failed",
}

func (r *Refusal) describeBudget() string {
	var b strings.Builder
	b.WriteString("the ")
	if r.Period != "" {
		b.WriteString(periodWord(r.Period))
		b.WriteByte(' ')
	}
	b.WriteString("budget of ")
	r.writeScope(&b)
	if r.Spent >= r.Amount {
		b.WriteString(" is used up")
	} else {
		b.WriteString(" does not hold this request")
	}
	if !r.Shared() {
		b.WriteString(": the limit is ")
		r.writeAmount(&b, r.Amount)
		b.WriteString(", spent ")
		r.writeAmount(&b, r.Spent)
		b.WriteString(", reserved by requests in flight ")
		r.writeAmount(&b, r.Reserved)
		b.WriteString(", this request needs up to ")
		r.writeAmount(&b, r.Estimate)
	}
	if r.ResetsAt.IsZero() {
		b.WriteString("; it does not reset by itself")
	} else {
		b.WriteString("; it resets at ")
		b.WriteString(r.ResetsAt.UTC().Format(time.RFC3339))
	}
	return b.String()
}

// periodWord is the adjective of a budget's period.
func periodWord(period string) string {
	switch period {
	case "minute":
		return "per-minute"
	case "hour", "week", "month":
		return period + "ly"
	case "day":
		return "daily"
	case "30d":
		return "30-day"
	}
	return period
}

func (r *Refusal) describeRate() string {
	unit := "requests"
	if r.Reason == TPM {
		unit = "tokens"
	}
	var b strings.Builder
	r.writeScope(&b)
	if r.Shared() {
		b.WriteString(" is at its limit of " + unit + " per minute")
		b.WriteString(r.retryWords())
		return b.String()
	}
	b.WriteString(" may use " + count(r.Amount) + " " + unit + " per minute and has used " + count(r.Spent+r.Reserved))
	if r.Reason == TPM {
		b.WriteString(", this request needs up to " + count(r.Estimate))
	}
	if r.NoRetry {
		b.WriteString("; it alone exceeds the limit, ask for fewer tokens")
		return b.String()
	}
	b.WriteString(r.retryWords())
	return b.String()
}

func (r *Refusal) describeParallel() string {
	var b strings.Builder
	r.writeScope(&b)
	if r.Shared() {
		b.WriteString(" is at its limit of requests in flight")
	} else {
		b.WriteString(" may have " + count(r.Amount) + " requests in flight and has " + count(r.Spent+r.Reserved))
	}
	b.WriteString(r.retryWords())
	return b.String()
}

func (r *Refusal) describeMaxRequest() string {
	var b strings.Builder
	b.WriteString("this request may need ")
	r.writeAmount(&b, r.Estimate)
	if r.Shared() {
		b.WriteString(", more than ")
		r.writeScope(&b)
		b.WriteString(" allows for one request")
		return b.String()
	}
	b.WriteString(", ")
	r.writeScope(&b)
	b.WriteString(" allows at most ")
	r.writeAmount(&b, r.Amount)
	b.WriteString(" for one request")
	return b.String()
}

// writeScope writes who the limit belongs to, and for which model.
func (r *Refusal) writeScope(b *strings.Builder) {
	switch r.ScopeKind {
	case "":
		b.WriteString("the caller")
	case "global":
		b.WriteString("the whole gateway")
	default:
		b.WriteString(strings.ReplaceAll(r.ScopeKind, "_", " "))
		b.WriteByte(' ')
		b.WriteString(Quote(r.ScopeID))
	}
	if r.Model != "" {
		b.WriteString(" for model ")
		b.WriteString(Quote(r.Model))
	}
}

func (r *Refusal) writeAmount(b *strings.Builder, n int64) {
	switch r.Unit {
	case "usd":
		b.WriteString("$")
		b.WriteString(FormatUSD(n))
	case "":
		b.WriteString(count(n))
	default:
		b.WriteString(count(n))
		b.WriteByte(' ')
		b.WriteString(strings.ReplaceAll(r.Unit, "_", " "))
	}
}

func (r *Refusal) retryWords() string {
	s, ok := r.retryAfter()
	if !ok {
		return ""
	}
	return "; try again in " + count(wholeSeconds(s)) + " s"
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

// maxQuoted bounds what a message repeats of a name, in bytes: clients choose model names and end users.
const maxQuoted = 128

// Quote puts a name into a message: quoted, control characters escaped, and cut after 128 bytes.
func Quote(name string) string {
	if len(name) <= maxQuoted {
		return strconv.Quote(name)
	}
	cut := strings.ToValidUTF8(name[:maxQuoted], "")
	return strconv.Quote(cut + "...")
}
