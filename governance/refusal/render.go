package refusal

import (
	"strconv"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// Response is a whole HTTP answer.
type Response struct {
	Status int
	Header [][2]string // lower-case names, values free of control characters
	Body   []byte
}

// Options are what a refusal's rendering depends on beside the refusal.
type Options struct {
	// BudgetStatus is the status of budget refusals, errors.budget_status; 0 stands for 429.
	BudgetStatus int
	// Array wraps the body as the one element of a JSON array, which is how Gemini's streamGenerateContent without
	// alt=sse answers. Other dialects ignore it.
	Array bool
}

// Render makes the answer in the dialect of the path that was called. requestID is tollgate's id of the request.
func (r *Refusal) Render(d usage.Dialect, requestID string, opt Options) Response {
	status := r.Status(opt.BudgetStatus)
	return Response{
		Status: status,
		Header: r.header(d, requestID),
		Body:   r.body(d, requestID, status, opt),
	}
}

func (r *Refusal) header(d usage.Dialect, requestID string) [][2]string {
	id := escapeHeader(requestID)
	k := r.kind()
	h := make([][2]string, 0, 12)
	h = append(h,
		[2]string{"content-type", "application/json"},
		[2]string{"cache-control", "private, no-store"},
		[2]string{"x-request-id", id},
		[2]string{"request-id", id},
		[2]string{"x-tollgate-request-id", id},
		[2]string{"x-tollgate-origin", "tollgate"},
		[2]string{"x-tollgate-refused", r.refused()},
	)
	if wait, ok := r.retryAfter(); ok {
		h = append(h, [2]string{"retry-after", strconv.FormatInt(wholeSeconds(wait), 10)})
		if k.millis {
			h = append(h, [2]string{"retry-after-ms", strconv.FormatInt(roundUp(wait, time.Millisecond), 10)})
		}
	}
	if k.noRetry {
		h = append(h, [2]string{"x-should-retry", "false"})
	}
	if r.Reason == Budget && !r.ResetsAt.IsZero() {
		h = append(h, [2]string{"x-tollgate-budget-reset", r.ResetsAt.UTC().Format(time.RFC3339)})
	}
	if d == usage.Bedrock {
		h = append(h, [2]string{"x-amzn-errortype", k.bedrock})
	}
	return h
}

// refused is the value of x-tollgate-refused: "<scope kind>/<id> <limit> <period>". A refusal by no limit has its
// reason in the limit's place, one about no scope "-" in the scope's.
func (r *Refusal) refused() string {
	v := "-"
	if r.ScopeKind != "" {
		v = escapeHeader(r.ScopeKind) + "/" + escapeHeader(r.ScopeID)
	}
	if r.Limit != "" {
		v += " " + escapeHeader(r.Limit)
	} else {
		v += " " + string(r.Reason)
	}
	if r.Period != "" {
		v += " " + escapeHeader(r.Period)
	}
	return v
}

// maxHeaderValue bounds one escaped value, in bytes.
const maxHeaderValue = 256

// escapeHeader makes a value safe in a header and readable back: everything but visible ASCII is percent-encoded, as is
// the percent sign (Envoy answers 500 to CR and LF, and sends other bytes raw, which clients decode as latin-1).
func escapeHeader(s string) string {
	clean := len(s) <= maxHeaderValue
	for i := 0; clean && i < len(s); i++ {
		clean = plainHeaderByte(s[i])
	}
	if clean {
		return s
	}
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, min(3*len(s), maxHeaderValue))
	for i := 0; i < len(s) && len(out)+3 <= maxHeaderValue; i++ {
		if c := s[i]; plainHeaderByte(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

func plainHeaderByte(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }
