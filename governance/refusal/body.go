package refusal

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// body writes the error object of the dialect. Members come in the order of the provider's own documents.
func (r *Refusal) body(d usage.Dialect, requestID string, status int, opt Options) []byte {
	w := writer{buf: make([]byte, 0, 768)}
	switch d {
	case usage.Anthropic:
		r.anthropic(&w, requestID)
	case usage.Gemini:
		if opt.Array {
			w.raw("[")
		}
		r.gemini(&w, requestID, status)
		if opt.Array {
			w.raw("]")
		}
	case usage.Bedrock:
		w.open()
		w.text("message", r.Describe())
		r.details(&w, requestID)
		w.close()
	default: // Azure's clients are the OpenAI ones
		r.openAI(&w, requestID)
	}
	return w.buf
}

func (r *Refusal) openAI(w *writer, requestID string) {
	k := r.kind()
	w.open()
	w.name("error")
	w.open()
	w.text("message", r.Describe())
	w.text("type", k.openAI)
	w.textOrNull("param", r.Param)
	w.textOrNull("code", k.code)
	r.details(w, requestID)
	w.close()
	w.close()
}

func (r *Refusal) anthropic(w *writer, requestID string) {
	w.open()
	w.text("type", "error")
	w.name("error")
	w.open()
	w.text("type", r.kind().anthropic)
	w.text("message", r.Describe())
	if r.Reason == Budget {
		// The SDKs make their EnforcedSpendLimitReachedError of this code.
		w.name("details")
		w.open()
		w.text("error_code", "enforced_spend_limit_reached")
		w.close()
	}
	r.details(w, requestID)
	w.close()
	w.text("request_id", requestID)
	w.close()
}

func (r *Refusal) gemini(w *writer, requestID string, status int) {
	w.open()
	w.name("error")
	w.open()
	w.name("code")
	w.raw(strconv.Itoa(status))
	w.text("message", r.Describe())
	w.text("status", r.kind().gemini)
	if wait, ok := r.retryAfter(); ok {
		w.name("details")
		w.raw("[")
		w.open()
		w.text("@type", "type.googleapis.com/google.rpc.RetryInfo")
		w.text("retryDelay", count(wholeSeconds(wait))+"s")
		w.close()
		w.raw("]")
	}
	r.details(w, requestID)
	w.close()
	w.close()
}

// details writes the member "tollgate": what refused, in numbers. Members that say nothing are left out; so are the
// amounts of a scope that tenants share. Dollars are exact JSON decimals.
func (r *Refusal) details(w *writer, requestID string) {
	w.name("tollgate")
	w.open()
	if r.ScopeKind != "" {
		w.text("scope", r.ScopeKind)
		w.text("id", r.ScopeID)
	}
	if r.Model != "" {
		w.text("model", r.Model)
	}
	if r.Limit != "" {
		w.text("limit", r.Limit)
	}
	if r.Period != "" {
		w.text("period", r.Period)
	}
	if r.Limit != "" && !r.Shared() {
		if r.Unit != "" {
			w.text("unit", r.Unit)
		}
		r.amount(w, "amount", r.Amount)
		r.amount(w, "spent", r.Spent)
		r.amount(w, "reserved", r.Reserved)
		r.amount(w, "estimate", r.Estimate)
	}
	if !r.ResetsAt.IsZero() {
		w.text("resets_at", r.ResetsAt.UTC().Format(time.RFC3339))
	}
	w.text("request_id", requestID)
	w.close()
}

func (r *Refusal) amount(w *writer, name string, n int64) {
	w.name(name)
	if r.Unit == "usd" {
		w.buf = appendUSD(w.buf, n)
		return
	}
	w.raw(count(n))
}

// writer appends JSON to a buffer; it puts the commas between members.
type writer struct{ buf []byte }

func (w *writer) open()        { w.raw("{") }
func (w *writer) close()       { w.raw("}") }
func (w *writer) raw(s string) { w.buf = append(w.buf, s...) }

func (w *writer) name(n string) {
	if w.buf[len(w.buf)-1] != '{' {
		w.raw(",")
	}
	w.quote(n)
	w.raw(":")
}

func (w *writer) text(name, value string) {
	w.name(name)
	w.quote(value)
}

func (w *writer) textOrNull(name, value string) {
	w.name(name)
	if value == "" {
		w.raw("null")
		return
	}
	w.quote(value)
}

// quote appends s as a JSON string. Invalid UTF-8 becomes the replacement character; the error says only that.
func (w *writer) quote(s string) { w.buf, _ = jsontext.AppendQuote(w.buf, s) }
