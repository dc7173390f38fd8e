package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

// hello is the answer to a user's "hello", in full.
const hello = "This is tollgate's built-in demo provider: no model ran. You said: hello\n" +
	"The key, its budget, the limits and the bill are real; give a deployment a url to reach a real provider."

// do sends a request to a provider without delays.
func do(t *testing.T, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	handler := New(Options{
		Models: []string{"demo", "org/other"}, ChunkDelay: -1, Now: func() time.Time { return time.Unix(1700000000, 0) },
	})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

// decode reads a JSON answer.
func decode(t *testing.T, body []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(body, into, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("answer %s: %v", body, err)
	}
}

func TestChat(t *testing.T) {
	t.Parallel()
	w := do(t, "POST", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"hello"}]}`)
	want := fmt.Sprintf(`{"id":"chatcmpl-demo-1","object":"chat.completion","created":1700000000,"model":"demo",`+
		`"choices":[{"index":0,"message":{"role":"assistant","content":%q},"logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":5,"completion_tokens":39,"total_tokens":44}}`, hello)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, content type %q", w.Code, w.Header().Get("Content-Type"))
	}
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestChatUsageAndText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		body   string
		want   usage
		finish string
		begins string
	}{
		{
			name: "max_tokens", body: `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"hello"}]}`,
			want: usage{PromptTokens: 5, CompletionTokens: 3, TotalTokens: 8}, finish: "length", begins: "This is tollga",
		},
		{
			name: "max_completion_tokens", body: `{"model":"m","max_completion_tokens":1,"messages":[{"role":"user","content":"hello"}]}`,
			want: usage{PromptTokens: 5, CompletionTokens: 1, TotalTokens: 6}, finish: "length", begins: "This",
		},
		{
			name: "a limit that is not reached", body: `{"model":"m","max_tokens":39,"messages":[{"role":"user","content":"hello"}]}`,
			want: usage{PromptTokens: 5, CompletionTokens: 39, TotalTokens: 44}, finish: "stop", begins: hello,
		},
		{
			name: "n", body: `{"model":"m","n":3,"max_tokens":2,"messages":[{"role":"user","content":"hello"}]}`,
			want: usage{PromptTokens: 5, CompletionTokens: 6, TotalTokens: 11}, finish: "length", begins: "This is",
		},
		{
			name: "the last user message, and all are counted",
			body: `{"model":"m","messages":[{"role":"system","content":"be kind"},{"role":"user","content":"first"},` +
				`{"role":"assistant","content":null},{"role":"user","content":[{"type":"text","text":"sec"},{"type":"image_url"},{"type":"text","text":"ond"}]}]}`,
			want: usage{PromptTokens: 20, CompletionTokens: 39, TotalTokens: 59}, finish: "stop",
			begins: strings.Replace(hello, "hello", "second", 1),
		},
		{
			name: "no user message", body: `{"model":"m","messages":[{"role":"system","content":"x"}]}`,
			want: usage{PromptTokens: 5, CompletionTokens: 42, TotalTokens: 47}, finish: "stop",
			begins: "This is tollgate's built-in demo provider: no model ran. There was no user message. The key,",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := do(t, "POST", "/v1/chat/completions", test.body)
			var got struct {
				Choices []choice `json:"choices"`
				Usage   usage    `json:"usage"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
				t.Fatalf("status %d, answer %s, error %v", w.Code, w.Body, err)
			}
			if diff := cmp.Diff(test.want, got.Usage); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
			counted := 0
			for i, choice := range got.Choices {
				content := *choice.Message.Content
				counted += CountTokens(content)
				if choice.Index != i || *choice.FinishReason != test.finish || !strings.HasPrefix(content, test.begins) {
					t.Errorf("choice %d: index %d, finish %s, text %q", i, choice.Index, *choice.FinishReason, content)
				}
			}
			if counted != got.Usage.CompletionTokens {
				t.Errorf("the choices have %d tokens, usage says %d", counted, got.Usage.CompletionTokens)
			}
		})
	}
}

func TestChatLongMessageIsCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxEcho+1)
	w := do(t, "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`+long+`"}]}`)
	if want := "You said: " + strings.Repeat("é", maxEcho) + `...\n`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("answer is %s", w.Body)
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		body string
		want string
	}{
		{
			name: "plain",
			body: `{"model":"demo","stream":true,"max_tokens":2,"messages":[{"role":"user","content":"hello"}]}`,
			want: `data: {HEAD,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

data: {HEAD,"choices":[{"index":0,"delta":{"content":"This"},"logprobs":null,"finish_reason":null}]}

data: {HEAD,"choices":[{"index":0,"delta":{"content":" is"},"logprobs":null,"finish_reason":null}]}

data: {HEAD,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}

data: [DONE]

`,
		},
		{
			name: "usage and two choices",
			body: `{"model":"demo","stream":true,"stream_options":{"include_usage":true},"n":2,"max_tokens":1,"messages":[{"role":"user","content":"hello"}]}`,
			want: `data: {HEAD,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}

data: {HEAD,"choices":[{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}

data: {HEAD,"choices":[{"index":0,"delta":{"content":"This"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {HEAD,"choices":[{"index":1,"delta":{"content":"This"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {HEAD,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null}

data: {HEAD,"choices":[{"index":1,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null}

data: {HEAD,"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}

data: [DONE]

`,
		},
	}
	const head = `"id":"chatcmpl-demo-1","object":"chat.completion.chunk","created":1700000000,"model":"demo"`
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := do(t, "POST", "/v1/chat/completions", test.body)
			if got := w.Header().Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
				t.Errorf("content type is %q", got)
			}
			if diff := cmp.Diff(strings.ReplaceAll(test.want, "HEAD", head), w.Body.String()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStreamIsSlowAndEndsWithItsClient(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	handler := New(Options{ChunkDelay: 50 * time.Millisecond})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := time.Now()
	r, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/chat/completions",
		strings.NewReader(`{"model":"demo","stream":true,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var seen bytes.Buffer
	for !bytes.Contains(seen.Bytes(), []byte(`" is"`)) {
		if _, err := io.CopyN(&seen, answer.Body, 1); err != nil {
			t.Fatalf("after %q: %v", &seen, err)
		}
	}
	if took := time.Since(begun); took < 100*time.Millisecond {
		t.Errorf("the second token came after %v, want at least two delays of 50ms", took)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the stream goes on without its client")
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	const user = `"messages":[{"role":"user","content":"hello"}]`
	tests := []struct {
		name, method, path, body string
		status                   int
		param, says              string
	}{
		{name: "no JSON", body: `hello`, status: 400, says: "could not parse the JSON body"},
		{name: "cut JSON", body: `{"model":`, status: 400, says: "could not parse the JSON body"},
		{name: "empty", status: 400, says: "could not parse the JSON body"},
		{name: "duplicate key", body: `{"model":"a","model":"b",` + user + `}`, status: 400, says: "duplicate"},
		{name: "text after the object", body: `{"model":"a",` + user + `} x`, status: 400, says: "could not parse the JSON body"},
		{name: "wrong type", body: `{"model":1,` + user + `}`, status: 400, says: "could not parse the JSON body"},
		{name: "fraction", body: `{"model":"a","max_tokens":1.5,` + user + `}`, status: 400, says: "max_tokens"},
		{name: "content of another type", body: `{"model":"a","messages":[{"role":"user","content":5}]}`, status: 400, says: "content must be"},
		{name: "no model", body: `{` + user + `}`, status: 400, param: "model", says: "model"},
		{name: "no messages", body: `{"model":"a"}`, status: 400, param: "messages", says: "messages"},
		{name: "unknown role", body: `{"model":"a","messages":[{"role":"king","content":""}]}`, status: 400, param: "messages[0].role", says: `"king"`},
		{name: "max_tokens 0", body: `{"model":"a","max_tokens":0,` + user + `}`, status: 400, param: "max_tokens", says: "from 1"},
		{name: "max_completion_tokens below 0", body: `{"model":"a","max_completion_tokens":-1,` + user + `}`, status: 400, param: "max_completion_tokens", says: "is -1"},
		{name: "both caps", body: `{"model":"a","max_tokens":1,"max_completion_tokens":1,` + user + `}`, status: 400, param: "max_tokens", says: "both"},
		{name: "n too large", body: `{"model":"a","n":129,` + user + `}`, status: 400, param: "n", says: "128"},
		{name: "stream_options without stream", body: `{"model":"a","stream_options":{},` + user + `}`, status: 400, param: "stream_options", says: "stream is true"},
		{name: "body too large", body: `"` + strings.Repeat("x", maxBody) + `"`, status: 413, says: "larger than"},
		{name: "method", method: "GET", status: 405, says: "use POST"},
		{name: "unknown path", path: "/v1/embeddings", status: 404, says: `"/v1/embeddings"`},
		{name: "unknown model", method: "GET", path: "/v1/models/x", status: 404, param: "model", says: `"x"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			method, path := "POST", "/v1/chat/completions"
			if test.method != "" {
				method = test.method
			}
			if test.path != "" {
				path = test.path
			}
			w := do(t, method, path, test.body)
			var got errorBody
			decode(t, w.Body.Bytes(), &got)
			if w.Code != test.status || got.Error.Type != "invalid_request_error" || !strings.Contains(got.Error.Message, test.says) {
				t.Errorf("status %d, error %+v; want %d and %q", w.Code, got.Error, test.status, test.says)
			}
			if param := got.Error.Param; param == nil && test.param != "" || param != nil && *param != test.param {
				t.Errorf("param is %v, want %q", param, test.param)
			}
		})
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, path, want string }{
		{
			name: "list", path: "/v1/models",
			want: `{"object":"list","data":[{"id":"demo","object":"model","created":0,"owned_by":"tollgate"},{"id":"org/other","object":"model","created":0,"owned_by":"tollgate"}]}`,
		},
		{name: "one", path: "/v1/models/demo", want: `{"id":"demo","object":"model","created":0,"owned_by":"tollgate"}`},
		{name: "a slash", path: "/v1/models/org/other", want: `{"id":"org/other","object":"model","created":0,"owned_by":"tollgate"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := do(t, "GET", test.path, "").Body.String(); got != test.want {
				t.Errorf("answer is %s, want %s", got, test.want)
			}
		})
	}
}

// FuzzParseRequest checks that any body is a request or a refusal with a message, and that a request can be answered.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"model":"demo","messages":[{"role":"user","content":"hello"}],"max_tokens":3,"n":2}`))
	f.Add([]byte(`{"model":"demo","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"stream":true}`))
	f.Add([]byte(`{"model":"a","model":"b"}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := parseRequest(body)
		if err != nil {
			var bad *refusal
			if !errors.As(err, &bad) || bad.message == "" || bad.status != http.StatusBadRequest {
				t.Fatalf("error is %#v", err)
			}
			return
		}
		tokens, finish := q.answer()
		if len(tokens) == 0 || finish == "stop" && len(tokens) < 10 {
			t.Fatalf("%d tokens, finish %s", len(tokens), finish)
		}
		if q.MaxTokens != nil && len(tokens) > *q.MaxTokens || q.prompt() < messageTokens {
			t.Fatalf("%d tokens of at most %v, prompt %d", len(tokens), q.MaxTokens, q.prompt())
		}
	})
}
