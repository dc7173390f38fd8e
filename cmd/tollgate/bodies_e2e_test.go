package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
)

// refusalWanted is how a refusal looks to an OpenAI client.
type refusalWanted struct {
	status     int
	kind, code string // error.type and error.code; "" is null
	final      bool   // x-should-retry: false
	wait       bool   // retry-after
	refused    string // x-tollgate-refused; "" is not looked at
}

// refusalBody is the error object of a refusal, OpenAI's and Anthropic's.
type refusalBody struct {
	Type  string
	Error struct {
		Type, Message string
		Param, Code   *string
		Details       struct {
			ErrorCode string `json:"error_code"`
		}
		Tollgate map[string]any
	}
	RequestID string `json:"request_id"`
}

// checkRefusal checks everything that all refusals have in common, and what is wanted of this one.
func checkRefusal(t *testing.T, got answered, want refusalWanted) refusalBody {
	t.Helper()
	var body refusalBody
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
		t.Errorf("answer %d is no JSON: %v\n%.300s", got.Status, err, got.Body)
		return body
	}
	code := ""
	if body.Error.Code != nil {
		code = *body.Error.Code
	}
	if got.Status != want.status || body.Error.Type != want.kind || code != want.code {
		t.Errorf("refusal = %d %s/%s, want %d %s/%s: %.500s", got.Status, body.Error.Type, code, want.status, want.kind, want.code, got.Body)
	}
	h := got.Header
	if ct := h.Get("content-type"); ct != "application/json" {
		t.Errorf("content-type = %q", ct)
	}
	if n := h.Get("content-length"); n != strconv.Itoa(len(got.Body)) {
		t.Errorf("content-length = %q of %d bytes", n, len(got.Body))
	}
	id := h.Get("x-tollgate-request-id")
	if id == "" || h.Get("x-request-id") != id || h.Get("request-id") != id || body.Error.Tollgate["request_id"] != id {
		t.Errorf("request ids differ: %q, %q, %q and %v in the body", id, h.Get("x-request-id"), h.Get("request-id"), body.Error.Tollgate["request_id"])
	}
	if h.Get("x-tollgate-origin") != "tollgate" || h.Get("cache-control") != "private, no-store" {
		t.Errorf("origin %q, cache-control %q", h.Get("x-tollgate-origin"), h.Get("cache-control"))
	}
	if refused := h.Get("x-tollgate-refused"); refused == "" || want.refused != "" && refused != want.refused {
		t.Errorf("x-tollgate-refused = %q, want %q", refused, want.refused)
	}
	if body.Error.Message == "" || strings.Contains(got.Body, "sk-test") || strings.Contains(got.Body, "provider-secret") {
		t.Errorf("message %q", got.Body)
	}
	checkRetry(t, got, want)
	return body
}

// checkRetry checks what tells a client to come back or not.
func checkRetry(t *testing.T, got answered, want refusalWanted) {
	t.Helper()
	if v := got.Header.Get("x-should-retry"); (v == "false") != want.final || v != "" && v != "false" {
		t.Errorf("x-should-retry = %q, want false: %t", v, want.final)
	}
	after := got.Header.Get("retry-after")
	if !want.wait {
		if after != "" {
			t.Errorf("retry-after = %q, want none", after)
		}
		return
	}
	if n, err := strconv.Atoi(after); err != nil || n < 1 || n > 65 {
		t.Errorf("retry-after = %q, want 1 to 65", after)
	}
}

// TestHostileBodies posts bodies that two readers could understand differently, or that ask for absurd amounts.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	// A negative cap is no wrong type: it passes, and reserves as if it were absent. So does a cap too large to be one,
	// when the budget holds it.
	passes := map[string]bool{"max_tokens_negative.json": true}
	// Refused for what it may cost, not for its form.
	broke := map[string]bool{"max_tokens_huge.json": true, "n_huge.json": true}
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, `
models:
  - name: cheap
    aliases: [m]
    deployments: [{name: p, url: "PROVIDER/v1", dialect: openai, credential: "provider-secret", price: {input: 0, output: 10}}]
  - name: dear
    deployments: [{name: q, url: "PROVIDER/v1", dialect: openai, credential: "provider-secret", price: {input: 0, output: 1000}}]
keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 1, per: day}], rpm: 1000, tpm: 100000, parallel: 1}}]
`)
	files, err := filepath.Glob("testdata/hostile/*.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p.Reset()
		got := r.chat("sk-test-a", string(body))
		switch {
		case passes[name]:
			if got.Status != 200 || len(p.Hits()) != 1 {
				t.Errorf("%s: %d %s, %d hits, want it to pass", name, got.Status, got.Body, len(p.Hits()))
			}
			rec := s.settled(1)[0]
			if want := int64(1024 * 10_000); rec.Reserved != want {
				t.Errorf("%s reserved %d nano-dollars, want those of %d", name, rec.Reserved, want)
			}
			continue
		case broke[name]:
			checkRefusal(t, got, refusalWanted{status: 429, kind: "insufficient_quota", code: "insufficient_quota", final: true, refused: "key/k budget day"})
		default:
			checkRefusal(t, got, refusalWanted{status: 400, kind: "invalid_request_error"})
		}
		if hits := p.Hits(); len(hits) != 0 {
			t.Errorf("%s reached the provider", name)
		}
	}
	s.settled(1)
	s.checkNothingHeld("tg:{k:k}", "k")
	if v := s.field("tg:{k:k}:b:key:k", "uday.s"); v != "160000" { // the 16 tokens of the one that passed
		t.Errorf("spent %q nano-dollars, want 160000", v)
	}
}

// checkNothingHeld wants a key to hold no slot and no reservation.
func (s *stores) checkNothingHeld(home, key string) {
	s.t.Helper()
	if live := s.Redis.Client().ZCard(s.t.Context(), home+":l:key:"+key).Val(); live != 0 {
		s.t.Errorf("%d slots of key %s are taken", live, key)
	}
	for name, value := range s.Redis.Client().HGetAll(s.t.Context(), home+":b:key:"+key).Val() {
		if strings.HasSuffix(name, ".r") && value != "0" {
			s.t.Errorf("key %s holds a reservation: %s = %s", key, name, value)
		}
	}
}

// framed is what a provider saw of one request.
type framed struct {
	length   int64 // -1: chunked, or HTTP/2 without a length
	encoding []string
	headers  http.Header
	body     string
}

// framedProvider notes how requests come, and answers a streaming request with a usage chunk inside a body of declared
// length.
type framedProvider struct {
	url  string
	mu   sync.Mutex
	last framed
}

func newFramedProvider(t *testing.T, h2 bool) *framedProvider {
	t.Helper()
	p := &framedProvider{}
	stream := events(helloChunk, finishChunk, usageChunk, "[DONE]")
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // a body that is shorter than its length
		}
		p.mu.Lock()
		p.last = framed{r.ContentLength, r.TransferEncoding, r.Header.Clone(), string(body)}
		p.mu.Unlock()
		w.Header().Set("content-type", "text/event-stream")
		w.Header().Set("content-length", strconv.Itoa(len(stream)))
		_, _ = io.WriteString(w, stream)
	}
	if h2 {
		p.url = h2Server(t, handler).URL
		return p
	}
	server := httptest.NewServer(http.HandlerFunc(handler))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// take is what came last.
func (p *framedProvider) take() framed {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last
	p.last = framed{}
	return last
}

// renamed are models whose upstream name is longer, shorter and as long; all are sent as the model "alias".
const renamed = `
models:
  - name: alias-longer
    deployments: [{name: a, url: "PROVIDER/v1", dialect: openai, model: a-much-longer-name-than-that, credential: s, price: {input: 0, output: 1}}]
  - name: alias-shorter
    deployments: [{name: b, url: "PROVIDER/v1", dialect: openai, model: m, credential: s, price: {input: 0, output: 1}}]
  - name: alias-equal
    deployments: [{name: c, url: "PROVIDER/v1", dialect: openai, model: other-equal, credential: s, price: {input: 0, output: 1}}]
keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 1, per: day}]}}]
`

// TestE60ContentLength edits bodies of every framing to be longer, shorter and as long: the provider gets one valid length
// or none, and the client a body that is whole although a chunk was taken out of it.
func TestE60ContentLength(t *testing.T) {
	t.Parallel()
	for _, x := range sides {
		for _, mode := range []string{"FULL_DUPLEX_STREAMED", "BUFFERED", "STREAMED"} { // as rendered, and the others
			t.Run(x.name+" "+mode, func(t *testing.T) {
				t.Parallel()
				p := newFramedProvider(t, x.serverH2)
				edit := []func(string) string{modes(mode, "STREAMED")}
				if x.serverH2 {
					edit = append(edit, h2Upstream)
				}
				r := startReplica(t, nil, nil, strings.ReplaceAll(renamed, "PROVIDER", p.url), edit...)
				c := client(t)
				if x.clientH2 {
					c = h2Client(t)
				}
				p.checkFramings(t, r, c)
			})
		}
	}
}

// checkFramings sends each model's request with a length and without.
func (p *framedProvider) checkFramings(t *testing.T, r *replica, c *http.Client) {
	t.Helper()
	for model, upstream := range map[string]string{
		"alias-longer": "a-much-longer-name-than-that", "alias-shorter": "m", "alias-equal": "other-equal",
	} {
		for _, asked := range []bool{true, false} { // with usage asked for, only the name is edited
			for _, chunked := range []bool{true, false} {
				members, want := `,"stream_options":{"include_usage":true}`, events(helloChunk, finishChunk, usageChunk, "[DONE]")
				if !asked {
					members, want = "", events(helloChunk, finishChunk, "[DONE]")
				}
				body := fmt.Sprintf(`{"model":%q,"messages":[],"stream":true%s}`, model, members)
				req := r.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(body))
				if chunked {
					req.ContentLength = -1
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 || err != nil || string(got) != want {
					t.Errorf("%s, usage %t, chunked %t: the client got %d %v\n%q, want\n%q", model, asked, chunked, resp.StatusCode, err, got, want)
				}
				sent := fmt.Sprintf(`{"model":%q,"messages":[],"stream":true,"stream_options":{"include_usage":true}}`, upstream)
				seen := p.take()
				if seen.body != sent {
					t.Errorf("%s, usage %t, chunked %t: the provider got\n%q, want\n%q", model, asked, chunked, seen.body, sent)
				}
				if seen.length >= 0 && (seen.length != int64(len(sent)) || len(seen.encoding) > 0) {
					t.Errorf("%s, usage %t, chunked %t: length %d and transfer-encoding %v for %d bytes", model, asked, chunked, seen.length, seen.encoding, len(sent))
				}
			}
		}
	}
}

// TestE60GzipRequest wants a compressed body, which nobody here reads, to be refused as one.
func TestE60GzipRequest(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	r := startReplica(t, nil, p, t1+`keys: [{id: k, secret: sk-test-a}]`)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, ask(1))
	_ = w.Close() // writes to memory
	for _, encoding := range []string{"gzip", "br", "deflate, gzip"} {
		req := r.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-a", bytes.NewReader(packed.Bytes()))
		req.Header.Set("content-encoding", encoding)
		checkRefusal(t, r.do(req), refusalWanted{status: 415, kind: "invalid_request_error"})
	}
	req := r.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(ask(1)))
	req.Header.Set("content-encoding", "identity")
	if got := r.do(req); got.Status != 200 {
		t.Errorf("identity: %d %s", got.Status, got.Body)
	}
	if hits := p.Hits(); len(hits) != 1 {
		t.Errorf("%d hits, want 1", len(hits))
	}
}

// TestE67RoutingAfterBody wants the model in the body to choose the upstream, whatever a header says.
func TestE67RoutingAfterBody(t *testing.T) {
	t.Parallel()
	a, b := providertest.New(t), providertest.New(t)
	text := `
models:
  - {name: a, deployments: [{name: up-a, url: "A/v1", dialect: openai, credential: s, price: {input: 0, output: 1}}]}
  - {name: b, deployments: [{name: up-b, url: "B/v1", dialect: openai, credential: s, price: {input: 0, output: 1}}]}
keys: [{id: k, secret: sk-test-a}]
`
	text = strings.NewReplacer("A/v1", a.URL()+"/v1", "B/v1", b.URL()+"/v1").Replace(text)
	r := startReplica(t, nil, nil, text)
	large := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 2<<20) + `"}],"model":"b"}` // the model comes last
	spoof := http.Header{
		"X-Model": {"a"}, "X-Tollgate-Cluster": {"deployment/up-a"}, "X-Tollgate-Model": {"a"}, "X-Envoy-Upstream-Alt-Stat-Name": {"a"},
	}
	for _, tt := range []struct {
		name    string
		client  *http.Client
		body    string
		chunked bool
		header  http.Header
	}{
		{"length", client(t), `{"model":"b","messages":[]}`, false, nil},
		{"chunked", client(t), `{"model":"b","messages":[]}`, true, nil},
		{"h2", h2Client(t), `{"model":"b","messages":[]}`, false, nil},
		{"h2 without length", h2Client(t), `{"model":"b","messages":[]}`, true, nil},
		{"2 MB", client(t), large, false, nil},
		{"2 MB chunked", client(t), large, true, nil},
		{"2 MB over h2", h2Client(t), large, false, nil},
		{"spoofed headers", client(t), `{"model":"b","messages":[]}`, false, spoof},
		{"spoofed headers over h2", h2Client(t), `{"model":"b","messages":[]}`, false, spoof},
	} {
		b.Reset()
		req := r.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(tt.body))
		if tt.chunked {
			req.ContentLength = -1
		}
		for name, values := range tt.header {
			req.Header[name] = values
		}
		status, err := statusOf(tt.client, req)
		hits := b.Wait(1, time.Second)
		if err != nil || status != 200 || len(hits) != 1 || string(hits[0].Body) != tt.body {
			t.Errorf("%s: %d, %v; b got %d requests", tt.name, status, err, len(hits))
			continue
		}
		if h := hits[0].Header; h.Get("x-tollgate-cluster") != "" || h.Get("x-tollgate-model") != "" || hits[0].Host != b.Addr() {
			t.Errorf("%s: b got host %s, headers %v", tt.name, hits[0].Host, h)
		}
	}
	b.Reset()
	checkRefusal(t, r.chat("sk-test-a", `{"messages":[]}`), refusalWanted{status: 400, kind: "invalid_request_error"})
	checkRefusal(t, r.chat("sk-test-a", `{"model":"c","messages":[]}`),
		refusalWanted{status: 404, kind: "invalid_request_error", code: "model_not_found", final: true})
	if len(a.Hits()) != 0 || len(b.Hits()) != 0 {
		t.Errorf("%d requests reached a, %d b", len(a.Hits()), len(b.Hits()))
	}
}
