package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
)

// replaceOnce replaces what a bootstrap must hold exactly once.
func replaceOnce(old, replacement string) func(string) string {
	return func(boot string) string {
		if n := strings.Count(boot, old); n != 1 {
			panic(fmt.Sprintf("the bootstrap holds %q %d times", old, n)) //nolint:forbidigo // the test itself is wrong
		}
		return strings.Replace(boot, old, replacement, 1)
	}
}

// addBeside puts a line beside one that a bootstrap holds once.
func addBeside(line, added string) func(string) string {
	return func(boot string) string {
		at := strings.Index(boot, line)
		if at < 0 {
			panic(fmt.Sprintf("the bootstrap does not hold %q", line)) //nolint:forbidigo // the test itself is wrong
		}
		indent := at - strings.LastIndexByte(boot[:at], '\n') - 1
		return replaceOnce(line, line+"\n"+strings.Repeat(" ", indent)+added)(boot)
	}
}

// modes sets the filter's body modes, with what they need: STREAMED the leave to send the body at once, those that hold a
// body a buffer of the size that tollgate accepts.
func modes(request, response string) func(string) string {
	return func(boot string) string {
		boot = replaceOnce("request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: "+request)(boot)
		boot = replaceOnce("response_body_mode: STREAMED", "response_body_mode: "+response)(boot)
		if request != "FULL_DUPLEX_STREAMED" {
			boot = replaceOnce("per_connection_buffer_limit_bytes: 1048576", "per_connection_buffer_limit_bytes: 34603008")(boot)
		}
		if request == "STREAMED" {
			boot = addBeside("stat_prefix: tollgate", "send_body_without_waiting_for_header_response: true")(boot)
		}
		return boot
	}
}

var (
	requestModes  = []string{"FULL_DUPLEX_STREAMED", "BUFFERED", "STREAMED", "BUFFERED_PARTIAL"}
	responseModes = []string{"STREAMED", "BUFFERED", "FULL_DUPLEX_STREAMED", "NONE"}
)

// governed is a model whose upstream has a longer name for it, a key with limits of each kind, and a cache.
const governed = `
models:
  - name: t1
    deployments: [{name: p, url: "PROVIDER/v1", dialect: openai, model: the-name-upstream, credential: "provider-secret", price: {input: 0, output: 10}}]
keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 1, per: day}], rpm: 100, tpm: 1000000, parallel: 2}}]
cache: {ttl: 60s}
defaults: {max_body: 64KiB}
`

// TestBodyModes makes the same calls in every pair of modes that an Envoy may be set to.
func TestBodyModes(t *testing.T) {
	t.Parallel()
	for _, request := range requestModes {
		for _, response := range responseModes {
			t.Run(request+"+"+response, func(t *testing.T) {
				t.Parallel()
				s, p := newStores(t), providertest.New(t)
				r := startReplica(t, s, p, governed, modes(request, response))
				unseen := response == "NONE"
				checkModeAnswers(t, s, r, p, unseen)
				checkModeRefusals(t, r, p)
				checkModeBooks(t, s, unseen)
			})
		}
	}
}

// checkModeAnswers makes three calls that are answered: JSON, the same once more, and a stream.
func checkModeAnswers(t *testing.T, s *stores, r *replica, p *providertest.Provider, unseen bool) {
	t.Helper()
	first := r.chat("sk-test-a", ask(100))
	hits := p.Wait(1, time.Second)
	want := strings.Replace(ask(100), "t1", "the-name-upstream", 1)
	if first.Status != 200 || len(hits) != 1 || string(hits[0].Body) != want || hits[0].Header.Get("authorization") != "Bearer provider-secret" {
		t.Fatalf("json: %d %s; the provider got %+v", first.Status, first.Body, hits)
	}
	if first.Body != string(hits[0].Reply.Body) || first.Header.Get("x-tollgate-cache") != "miss" ||
		first.Header.Get("x-ratelimit-remaining-requests") != "99" {
		t.Errorf("json: %v %s", first.Header, first.Body)
	}
	// What no one saw cannot be cached.
	wantCache, wantHits := "hit", 1
	if unseen {
		wantCache, wantHits = "miss", 2
	}
	waitFor(t, "the answer to be cached", func() bool {
		return unseen || len(s.Redis.Client().Keys(t.Context(), "tg:c:*").Val()) == 1
	})
	again := r.chat("sk-test-a", ask(100))
	if again.Status != 200 || again.Body != first.Body || again.Header.Get("x-tollgate-cache") != wantCache || len(p.Hits()) != wantHits {
		t.Errorf("again: %d %v %s, %d hits", again.Status, again.Header, again.Body, len(p.Hits()))
	}
	stream := r.chat("sk-test-a", `{"model":"t1","stream":true,"max_tokens":50,"messages":[]}`)
	if stream.Status != 200 || stream.Header.Get("content-type") != "text/event-stream" ||
		strings.Count(stream.Body, "data: ") != 5 || strings.Contains(stream.Body, `"choices":[]`) || !strings.HasSuffix(stream.Body, "data: [DONE]\n\n") {
		t.Errorf("stream: %d %v\n%s", stream.Status, stream.Header, stream.Body)
	}
}

// checkModeRefusals makes calls that we answer, with a body, without one, and with one that is too large.
func checkModeRefusals(t *testing.T, r *replica, p *providertest.Provider) {
	t.Helper()
	p.Reset()
	unknown := refusalWanted{status: 404, kind: "invalid_request_error", code: "model_not_found", final: true}
	checkRefusal(t, r.chat("sk-test-a", `{"model":"t2","messages":[]}`), unknown)
	large := `{"model":"t1","messages":[{"role":"user","content":"` + strings.Repeat("x", 100<<10) + `"}]}`
	for _, length := range []int64{int64(len(large)), -1} {
		req := r.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(large))
		req.ContentLength = length
		checkRefusal(t, r.do(req), refusalWanted{status: 413, kind: "invalid_request_error"})
	}
	empty := r.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-a", http.NoBody)
	checkRefusal(t, r.do(empty), refusalWanted{status: 400, kind: "invalid_request_error"})
	list := r.do(r.newRequest(t.Context(), "GET", "/v1/models", "sk-test-a", nil))
	if list.Status != 200 || list.Body != `{"object":"list","data":[{"id":"t1","object":"model","created":0,"owned_by":"tollgate"}]}` {
		t.Errorf("models: %d %s", list.Status, list.Body)
	}
	endpoint := refusalWanted{status: 404, kind: "invalid_request_error", code: "unknown_endpoint", final: true}
	nobody := refusalWanted{status: 401, kind: "invalid_request_error", code: "invalid_api_key", final: true}
	checkRefusal(t, r.do(r.newRequest(t.Context(), "OPTIONS", "/v1/chat/completions", "sk-test-a", nil)), endpoint)
	checkRefusal(t, r.do(r.newRequest(t.Context(), "OPTIONS", "/v1/chat/completions", "", nil)), nobody)
	checkRefusal(t, r.do(r.newRequest(t.Context(), "GET", "/v1/chat/completions", "", nil)), nobody)
	for key, want := range map[string]int{"sk-test-a": 404, "": 401} {
		got := r.do(r.newRequest(t.Context(), "HEAD", "/v1/chat/completions", key, nil))
		if got.Status != want || got.Body != "" || got.Header.Get("x-tollgate-request-id") == "" {
			t.Errorf("HEAD with key %q: %+v, want %d", key, got, want)
		}
	}
	if hits := p.Hits(); len(hits) != 0 {
		t.Errorf("%d refused calls reached the provider", len(hits))
	}
}

// checkModeBooks wants the three calls in the books: priced by their usage, or by what was reserved when nobody saw it.
func checkModeBooks(t *testing.T, s *stores, unseen bool) {
	t.Helper()
	want := map[int64]int{1_000_000: 1, 0: 1, 500_000: 1}
	spent := "1500000"
	if unseen {
		want = map[int64]int{1_000_000: 2, 500_000: 1}
		spent = "2500000"
	}
	got := map[int64]int{}
	for _, rec := range s.settled(3) {
		got[rec.CostNano]++
		if rec.Estimated != unseen || rec.Status != 200 {
			t.Errorf("record %+v, want estimated %t", rec, unseen)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("costs: %s", diff)
	}
	if v := s.field("tg:{k:k}:b:key:k", "uday.s"); v != spent {
		t.Errorf("spent %s, want %s", v, spent)
	}
	s.checkNothingHeld("tg:{k:k}", "k")
}

// TestBodyModesRefused wants the modes in which a request cannot be governed to say so, and to let nothing pass.
func TestBodyModesRefused(t *testing.T) {
	t.Parallel()
	for mode, words := range map[string]string{
		"NONE":     "request_body_mode NONE",
		"STREAMED": "send_body_without_waiting_for_header_response",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := providertest.New(t)
			r := startReplica(t, nil, p, governed, replaceOnce("request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: "+mode))
			got := r.chat("sk-test-a", ask(1))
			body := checkRefusal(t, got, refusalWanted{status: 500, kind: "server_error"})
			if !strings.Contains(body.Error.Message, words) || !strings.Contains(r.Log.String(), words) {
				t.Errorf("message %q does not say %q, or the log does not", body.Error.Message, words)
			}
			if hits := p.Hits(); len(hits) != 0 {
				t.Errorf("%d calls reached the provider", len(hits))
			}
		})
	}
}

// TestRetriesAreOneCall lets Envoy try three times: one stream, one unit of rpm, one record (E-39 c).
func TestRetriesAreOneCall(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, governed, addBeside("flush_timeout: 300s", "retry_policy: {retry_on: 5xx, num_retries: 3}"))
	p.Queue(providertest.JSON(503, `{}`), providertest.JSON(503, `{}`))
	got := r.chat("sk-test-a", ask(100))
	if got.Status != 200 || got.Header.Get("x-ratelimit-remaining-requests") != "99" {
		t.Errorf("answer = %+v", got)
	}
	want := strings.Replace(ask(100), "t1", "the-name-upstream", 1)
	hits := p.Hits()
	for _, h := range hits {
		if string(h.Body) != want {
			t.Errorf("an attempt got %s", h.Body)
		}
	}
	if rec := s.settled(1)[0]; len(hits) != 3 || rec.CostNano != 1_000_000 || rec.Outcome != ledger.Complete {
		t.Errorf("%d attempts, record %+v", len(hits), rec)
	}
	if got := r.chat("sk-test-a", ask(101)); got.Header.Get("x-ratelimit-remaining-requests") != "98" {
		t.Errorf("after the retries: %+v", got.Header)
	}
}

// TestEnvoysOwnReplies wants the answers that Envoy gives itself to be JSON, free, and to hold nothing.
func TestEnvoysOwnReplies(t *testing.T) {
	t.Parallel()
	for _, mode := range requestModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, p := newStores(t), providertest.New(t)
			idle := func(boot string) string { return strings.ReplaceAll(boot, "idle_timeout: 3600s", "idle_timeout: 1s") }
			r := startReplica(t, s, p, governed, modes(mode, "STREAMED"), idle)
			// The upstream says nothing.
			p.Answer(providertest.Reply{Break: providertest.HangBeforeHeaders})
			silent := r.chat("sk-test-a", ask(100))
			checkEnvoyError(t, silent, 408, 504)
			// The upstream resets.
			p.Answer(providertest.Reply{Break: providertest.ResetBeforeHeaders})
			checkEnvoyError(t, r.chat("sk-test-a", ask(101)), 502, 503)
			for _, rec := range s.settled(2) {
				if rec.Outcome != ledger.Failed || rec.CostNano != 0 {
					t.Errorf("record %+v, want a failed one that costs nothing", rec)
				}
			}
			// The client stops in the middle of its body.
			p.Reset()
			if got := halfBody(t, r); !strings.HasPrefix(got, "HTTP/1.1 408 ") {
				t.Errorf("half a body: %q, want 408", got)
			}
			s.settled(2)
			s.checkNothingHeld("tg:{k:k}", "k")
			if len(p.Hits()) != 0 {
				t.Error("half a body reached the provider")
			}
			p.Answer(providertest.JSON(200, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`))
			if got := r.chat("sk-test-a", ask(102)); got.Status != 200 {
				t.Errorf("afterwards: %d %s", got.Status, got.Body)
			}
		})
	}
}

// checkEnvoyError wants an error of Envoy's own that an SDK can read.
func checkEnvoyError(t *testing.T, got answered, statuses ...int) {
	t.Helper()
	var body refusalBody
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil || body.Error.Type != "server_error" || body.Error.Message == "" {
		t.Errorf("answer %d %q, %v, want a JSON error", got.Status, got.Body, err)
	}
	if !slices.Contains(statuses, got.Status) || got.Header.Get("x-tollgate-request-id") == "" {
		t.Errorf("answer %d %v, want one of %v", got.Status, got.Header, statuses)
	}
}

// halfBody sends half a request and returns the first line that comes back.
func halfBody(t *testing.T, r *replica) string {
	t.Helper()
	conn, err := net.Dial("tcp", r.Envoy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-test-a\r\ncontent-length: 100\r\n\r\n{\"model\"")
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Errorf("half a body: %v", err)
	}
	return line
}

// TestBufferOfEnvoyIsTooSmall wants a body above Envoy's own buffer, of which tollgate sees nothing, to be refused as ours
// are.
func TestBufferOfEnvoyIsTooSmall(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"BUFFERED", "BUFFERED_PARTIAL"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, p := newStores(t), providertest.New(t)
			r := startReplica(t, s, p, strings.Replace(governed, "64KiB", "32MiB", 1), replaceOnce("request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: "+mode))
			large := `{"model":"t1","messages":[{"role":"user","content":"` + strings.Repeat("x", 3<<20) + `"}]}`
			for _, length := range []int64{int64(len(large)), -1} {
				req := r.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(large))
				req.ContentLength = length
				checkRefusal(t, r.do(req), refusalWanted{status: 413, kind: "invalid_request_error"})
			}
			if len(p.Hits()) != 0 || len(s.records()) != 0 {
				t.Errorf("%d hits, %d records", len(p.Hits()), len(s.records()))
			}
			s.checkNothingHeld("tg:{k:k}", "k")
		})
	}
}

// TestVerdictTooLate lets Envoy's patience end before Redis has answered: nothing passes, nothing stays reserved.
func TestVerdictTooLate(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, governed, modes("BUFFERED", "STREAMED"), replaceOnce("message_timeout: 10s", "message_timeout: 0.2s"))
	s.Proxy.Delay(700 * time.Millisecond)
	got := r.chat("sk-test-a", ask(100))
	var body refusalBody
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil || got.Status != 503 && got.Status != 504 {
		t.Errorf("answer = %+v, %v", got, err)
	}
	s.Proxy.Delay(0)
	for _, rec := range s.settled(1) {
		if rec.CostNano != 0 || rec.Outcome != ledger.Abandoned {
			t.Errorf("record %+v", rec)
		}
	}
	s.checkNothingHeld("tg:{k:k}", "k")
	if len(p.Hits()) != 0 {
		t.Error("the call reached the provider")
	}
}

// TestKilledInMidStream wants no answer to go on without tollgate, and no request to pass afterwards.
func TestKilledInMidStream(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startSeparate(t, s, p, governed)
	reply := providertest.SSE("data: " + helloChunk)
	reply.Break = providertest.HangAfterBody
	p.Answer(reply)
	resp, err := r.http.Do(r.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(`{"model":"t1","stream":true,"messages":[]}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadFull(resp.Body, make([]byte, len(events(helloChunk)))); err != nil {
		t.Fatal(err)
	}
	r.Kill()
	if rest, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the stream ended well with %q", rest)
	}
	hits := p.Wait(1, 10*time.Second)
	if len(hits) != 1 || !hits[0].Gone {
		t.Errorf("the provider still answers: %+v", hits)
	}
	p.Reset()
	got := r.chat("sk-test-a", ask(1))
	var body refusalBody
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil || got.Status != 503 || body.Error.Type != "server_error" {
		t.Errorf("without tollgate: %+v, %v, want 503 as JSON", got, err)
	}
	if len(p.Hits()) != 0 {
		t.Error("a request passed without tollgate")
	}
}

// TestBrokenStreams ends streams from either side in the middle: each is charged for what was seen of it.
func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"STREAMED", "FULL_DUPLEX_STREAMED"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, p := newStores(t), providertest.New(t)
			r := startReplica(t, s, p, governed, modes("FULL_DUPLEX_STREAMED", mode))
			for i, end := range []providertest.Break{providertest.HangAfterBody, providertest.ResetAfterBody} {
				reply := providertest.SSE("data: "+helloChunk, "data: "+helloChunk)
				reply.Break = end
				if end == providertest.ResetAfterBody { // a reset may overtake what was sent before it
					reply.Chunks = append(reply.Chunks, providertest.Chunk{After: 200 * time.Millisecond})
				}
				p.Answer(reply)
				ctx, leave := context.WithCancel(t.Context())
				resp, err := client(t).Do(r.newRequest(ctx, "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(`{"model":"t1","stream":true,"max_tokens":100,"messages":[]}`)))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(resp.Body, make([]byte, 2*len(events(helloChunk)))); err != nil {
					t.Fatal(err)
				}
				if end == providertest.HangAfterBody {
					leave()
				}
				if rest, err := io.ReadAll(resp.Body); err == nil {
					t.Errorf("%s: the stream ended well with %q", end, rest)
				}
				leave()
				_ = resp.Body.Close()
				rec := newest(s.settled(i + 1))
				if rec.Outcome != ledger.Partial || !rec.Estimated || rec.CostNano <= 0 || rec.CostNano > rec.Reserved {
					t.Errorf("%s: record %+v", end, rec)
				}
			}
			s.checkNothingHeld("tg:{k:k}", "k")
		})
	}
}
