package refusal

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

var allReasons = []Reason{
	NoCredential, Ambiguous, UnknownKey, Blocked, Expired, UnknownEndpoint, EndpointDenied, ModelDenied, UnknownModel, Frozen,
	Malformed, TooLarge, Encoding, Unpriced, MaxRequest, Budget, Parallel, RPM, TPM, NoDeployment, DeploymentsBusy, StoreDown,
	Draining, Internal,
}

// headerOf also fails on a header given twice.
func headerOf(t *testing.T, r Response) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, h := range r.Header {
		if _, twice := m[h[0]]; twice {
			t.Errorf("header %s is set twice", h[0])
		}
		m[h[0]] = h[1]
	}
	return m
}

func TestRenderTable(t *testing.T) {
	t.Parallel()
	reset := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	wait := 2100 * time.Millisecond
	for _, tt := range []struct {
		name      string
		in        Refusal
		status    int
		openAI    string // type/code
		anthropic string
		gemini    string
		bedrock   string
		retry     string // retry-after/retry-after-ms/x-should-retry
	}{
		{"no key", Refusal{Reason: NoCredential}, 401, "invalid_request_error/invalid_api_key", "authentication_error", "UNAUTHENTICATED", "AccessDeniedException", "//false"},
		{"two keys", Refusal{Reason: Ambiguous}, 401, "invalid_request_error/invalid_api_key", "authentication_error", "UNAUTHENTICATED", "AccessDeniedException", "//false"},
		{"unknown key", Refusal{Reason: UnknownKey}, 401, "invalid_request_error/invalid_api_key", "authentication_error", "UNAUTHENTICATED", "AccessDeniedException", "//false"},
		{"blocked", Refusal{Reason: Blocked}, 401, "invalid_request_error/invalid_api_key", "authentication_error", "UNAUTHENTICATED", "AccessDeniedException", "//false"},
		{"expired", Refusal{Reason: Expired}, 401, "invalid_request_error/invalid_api_key", "authentication_error", "UNAUTHENTICATED", "AccessDeniedException", "//false"},
		{"unknown path", Refusal{Reason: UnknownEndpoint}, 404, "invalid_request_error/unknown_endpoint", "not_found_error", "NOT_FOUND", "ResourceNotFoundException", "//false"},
		{"endpoint denied", Refusal{Reason: EndpointDenied}, 403, "invalid_request_error/model_not_allowed", "permission_error", "PERMISSION_DENIED", "AccessDeniedException", "//false"},
		{"model denied", Refusal{Reason: ModelDenied}, 403, "invalid_request_error/model_not_allowed", "permission_error", "PERMISSION_DENIED", "AccessDeniedException", "//false"},
		{"unknown model", Refusal{Reason: UnknownModel}, 404, "invalid_request_error/model_not_found", "not_found_error", "NOT_FOUND", "ResourceNotFoundException", "//false"},
		{"frozen", Refusal{Reason: Frozen}, 403, "invalid_request_error/frozen", "permission_error", "PERMISSION_DENIED", "AccessDeniedException", "//false"},
		{"malformed", Refusal{Reason: Malformed}, 400, "invalid_request_error/", "invalid_request_error", "INVALID_ARGUMENT", "ValidationException", "//"},
		{"too large", Refusal{Reason: TooLarge}, 413, "invalid_request_error/", "request_too_large", "INVALID_ARGUMENT", "ValidationException", "//"},
		{"encoding", Refusal{Reason: Encoding}, 415, "invalid_request_error/", "invalid_request_error", "INVALID_ARGUMENT", "ValidationException", "//"},
		{"unpriced", Refusal{Reason: Unpriced}, 403, "invalid_request_error/model_not_priced", "permission_error", "PERMISSION_DENIED", "AccessDeniedException", "//false"},
		{"max_request", Refusal{Reason: MaxRequest}, 400, "invalid_request_error/request_too_expensive", "invalid_request_error", "INVALID_ARGUMENT", "ValidationException", "//"},
		{"budget", Refusal{Reason: Budget, RetryAfter: time.Hour, ResetsAt: reset}, 429, "insufficient_quota/insufficient_quota", "rate_limit_error", "RESOURCE_EXHAUSTED", "ServiceQuotaExceededException", "//false"},
		{"parallel", Refusal{Reason: Parallel}, 429, "requests/rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException", "1/1000/"},
		{"rpm", Refusal{Reason: RPM, RetryAfter: wait}, 429, "requests/rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException", "3/2100/"},
		{"tpm", Refusal{Reason: TPM, RetryAfter: wait}, 429, "tokens/rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException", "3/2100/"},
		{"tpm, never", Refusal{Reason: TPM, RetryAfter: wait, NoRetry: true}, 429, "tokens/rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException", "//false"},
		{"a wait below a millisecond", Refusal{Reason: RPM, RetryAfter: time.Nanosecond}, 429, "requests/rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException", "1/1/"},
		{"no deployment", Refusal{Reason: NoDeployment, RetryAfter: 5 * time.Second}, 503, "server_error/", "overloaded_error", "UNAVAILABLE", "ServiceUnavailableException", "5//"},
		{"deployments busy", Refusal{Reason: DeploymentsBusy, RetryAfter: 5 * time.Second}, 429, "requests/rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException", "5//"},
		{"store down", Refusal{Reason: StoreDown}, 503, "server_error/", "overloaded_error", "UNAVAILABLE", "ServiceUnavailableException", "1//"},
		{"draining", Refusal{Reason: Draining}, 503, "server_error/", "overloaded_error", "UNAVAILABLE", "ServiceUnavailableException", "1//"},
		{"internal", Refusal{Reason: Internal}, 500, "server_error/", "api_error", "INTERNAL", "InternalServerException", "//"},
		{"a reason without a row", Refusal{Reason: "odd"}, 500, "server_error/", "api_error", "INTERNAL", "InternalServerException", "//"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, d := range []usage.Dialect{usage.OpenAI, usage.Azure, usage.Anthropic, usage.Gemini, usage.Bedrock} {
				got := tt.in.Render(d, "req-1", Options{})
				h := headerOf(t, got)
				var class, want string
				switch d {
				case usage.OpenAI, usage.Azure:
					class, want = field(t, got.Body, "/error/type")+"/"+field(t, got.Body, "/error/code"), tt.openAI
				case usage.Anthropic:
					class, want = field(t, got.Body, "/error/type"), tt.anthropic
				case usage.Gemini:
					class, want = field(t, got.Body, "/error/status"), tt.gemini
				case usage.Bedrock:
					class, want = h["x-amzn-errortype"], tt.bedrock
				}
				if class != want {
					t.Errorf("%s: class %q, want %q", d, class, want)
				}
				if got.Status != tt.status {
					t.Errorf("%s: status %d, want %d", d, got.Status, tt.status)
				}
				if retry := h["retry-after"] + "/" + h["retry-after-ms"] + "/" + h["x-should-retry"]; retry != tt.retry {
					t.Errorf("%s: retry headers %q, want %q", d, retry, tt.retry)
				}
			}
		})
	}
}

// field reads one scalar of a JSON document by pointer; null is "".
func field(t *testing.T, body []byte, pointer string) string {
	t.Helper()
	dec := jsontext.NewDecoder(strings.NewReader(string(body)))
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			t.Fatalf("%s: no %s: %v", body, pointer, err)
		}
		atValue := dec.StackPointer() == jsontext.Pointer(pointer)
		if atValue && tok.Kind() == 'n' {
			return ""
		}
		if kind, n := dec.StackIndex(dec.StackDepth()); atValue && (kind != '{' || n%2 == 0) {
			return tok.String()
		}
	}
}

func TestRenderBodies(t *testing.T) {
	t.Parallel()
	budget := Refusal{Reason: Budget, ScopeKind: "team", ScopeID: "search", Limit: "budget", Unit: "usd", Period: "day", Message: "m",
		Amount: 10e9, Spent: 9_900_000_001, Reserved: 5, Estimate: 250_000_000, ResetsAt: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)}
	const details = `"tollgate":{"scope":"team","id":"search","limit":"budget","period":"day","unit":"usd",` +
		`"amount":10,"spent":9.900000001,"reserved":0.000000005,"estimate":0.25,"resets_at":"2026-11-30T00:00:00Z","request_id":"r"}`
	perModel := Refusal{Reason: RPM, ScopeKind: "key", ScopeID: "k", Model: "m1", Limit: "rpm", Unit: "requests", Message: "m", Amount: 3, Spent: 3, RetryAfter: 1500 * time.Millisecond}
	shared := Refusal{Reason: Budget, ScopeKind: "provider", ScopeID: "openai", Limit: "budget", Unit: "usd", Period: "month", Message: "m", Amount: 7, Spent: 8}
	for _, tt := range []struct {
		name string
		in   Refusal
		d    usage.Dialect
		opt  Options
		want string
	}{
		{"openai", budget, usage.OpenAI, Options{}, `{"error":{"message":"m","type":"insufficient_quota","param":null,"code":"insufficient_quota",` + details + `}}`},
		{"azure", budget, usage.Azure, Options{}, `{"error":{"message":"m","type":"insufficient_quota","param":null,"code":"insufficient_quota",` + details + `}}`},
		{"anthropic", budget, usage.Anthropic, Options{}, `{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"},` + details + `},"request_id":"r"}`},
		{"gemini", budget, usage.Gemini, Options{BudgetStatus: 402}, `{"error":{"code":402,"message":"m","status":"RESOURCE_EXHAUSTED",` + details + `}}`},
		{"bedrock", budget, usage.Bedrock, Options{}, `{"message":"m",` + details + `}`},
		{"gemini with a wait, as an array", perModel, usage.Gemini, Options{Array: true},
			`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}],` +
				`"tollgate":{"scope":"key","id":"k","model":"m1","limit":"rpm","unit":"requests","amount":3,"spent":3,"reserved":0,"estimate":0,"request_id":"r"}}}]`},
		{"array is for gemini alone", perModel, usage.Bedrock, Options{Array: true},
			`{"message":"m","tollgate":{"scope":"key","id":"k","model":"m1","limit":"rpm","unit":"requests","amount":3,"spent":3,"reserved":0,"estimate":0,"request_id":"r"}}`},
		{"a shared scope keeps its amounts", shared, usage.OpenAI, Options{},
			`{"error":{"message":"m","type":"insufficient_quota","param":null,"code":"insufficient_quota","tollgate":{"scope":"provider","id":"openai","limit":"budget","period":"month","request_id":"r"}}}`},
		{"no limit, a field at fault, invalid UTF-8", Refusal{Reason: Malformed, Message: "bad \xff \"x\"\n", Param: "model"}, usage.OpenAI, Options{},
			`{"error":{"message":"bad ` + "\ufffd" + ` \"x\"\n","type":"invalid_request_error","param":"model","code":null,"tollgate":{"request_id":"r"}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.in.Render(tt.d, "r", tt.opt)
			if diff := cmp.Diff(tt.want, string(got.Body)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if !jsontext.Value(got.Body).IsValid() {
				t.Errorf("body is no JSON: %s", got.Body)
			}
		})
	}
}

func TestRenderHeaders(t *testing.T) {
	t.Parallel()
	r := Refusal{Reason: Budget, ScopeKind: "team", ScopeID: "search", Limit: "budget", Period: "month", Unit: "usd",
		ResetsAt: time.Date(2026, 12, 1, 1, 0, 0, 0, time.FixedZone("", 3600))}
	got := headerOf(t, r.Render(usage.OpenAI, "req-1", Options{BudgetStatus: 422}))
	want := map[string]string{
		"content-type":            "application/json",
		"cache-control":           "private, no-store",
		"x-request-id":            "req-1",
		"request-id":              "req-1",
		"x-tollgate-request-id":   "req-1",
		"x-tollgate-origin":       "tollgate",
		"x-tollgate-refused":      "team/search budget month",
		"x-should-retry":          "false",
		"x-tollgate-budget-reset": "2026-12-01T00:00:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestRefusedHeader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   Refusal
		want string
	}{
		{"budget", Refusal{Reason: Budget, ScopeKind: "key", ScopeID: "ci", Limit: "budget", Period: "day"}, "key/ci budget day"},
		{"rate", Refusal{Reason: TPM, ScopeKind: "team", ScopeID: "a", Limit: "tpm"}, "team/a tpm"},
		{"no limit", Refusal{Reason: ModelDenied, ScopeKind: "team", ScopeID: "a"}, "team/a model_not_allowed"},
		{"no scope", Refusal{Reason: UnknownKey}, "- unknown_key"},
		{"global", Refusal{Reason: Budget, ScopeKind: "global", Limit: "budget", Period: "month"}, "global/ budget month"},
		{"injection", Refusal{Reason: RPM, ScopeKind: "end_user", ScopeID: "x\r\nx-evil: 1", Limit: "rpm"}, "end_user/x%0D%0Ax-evil:%201 rpm"},
		{"percent and unicode read back", Refusal{Reason: RPM, ScopeKind: "key", ScopeID: "a%20\u00e9", Limit: "rpm"}, "key/a%2520%C3%A9 rpm"},
		{"nul", Refusal{Reason: RPM, ScopeKind: "key", ScopeID: "a\x00", Limit: "rpm"}, "key/a%00 rpm"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.in.refused(); got != tt.want {
				t.Errorf("refused() = %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzRender holds for every dialect: the body is JSON, the headers are safe, the answer is bounded.
func FuzzRender(f *testing.F) {
	f.Add("key", "ci", "month", "req", "message", int64(5), int64(7))
	f.Add("end_user", "\r\n\xff%", "\x00", "\n", "\xff", int64(-1), int64(0))
	f.Fuzz(func(t *testing.T, scope, id, period, requestID, message string, amount, wait int64) {
		for _, reason := range allReasons {
			r := Refusal{Reason: reason, ScopeKind: scope, ScopeID: id, Period: period, Limit: "budget", Unit: "usd", Message: message,
				Amount: amount, Estimate: -amount, RetryAfter: time.Duration(wait)}
			for _, d := range []usage.Dialect{usage.OpenAI, usage.Anthropic, usage.Gemini, usage.Bedrock} {
				got := r.Render(d, requestID, Options{})
				if !jsontext.Value(got.Body).IsValid() {
					t.Fatalf("%s %s: not JSON: %s", reason, d, got.Body)
				}
				if http.StatusText(got.Status) == "" {
					t.Fatalf("%s: status %d", reason, got.Status)
				}
				for _, h := range got.Header {
					if strings.ContainsFunc(h[1], func(c rune) bool { return c < ' ' || c > '~' }) || len(h[1]) > 4*maxHeaderValue {
						t.Fatalf("%s %s: header %q", reason, d, h)
					}
				}
			}
		}
	})
}
