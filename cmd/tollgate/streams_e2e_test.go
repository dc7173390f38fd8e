package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
)

// The chunks of one logical stream with usage 7/5/12, as data.
const (
	helloChunk  = `{"id":"c","choices":[{"index":0,"delta":{"content":"Hé"},"finish_reason":null}],"usage":null}`
	finishChunk = `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageChunk  = `{"id":"c","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`
)

// events writes data as server-sent events.
func events(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

// randomly is an answer of server-sent events in random pieces of at most 40 bytes.
func randomly(rng *rand.Rand, stream string) providertest.Reply {
	reply := providertest.SSE()
	for rest := []byte(stream); len(rest) > 0; {
		n := min(len(rest), 1+rng.IntN(40))
		reply.Chunks = append(reply.Chunks, providertest.Chunk{Data: rest[:n]})
		rest = rest[n:]
	}
	return reply
}

// streamKeys are a key whose usage matters and its model, and a model whose provider refuses stream_options.
const streamKeys = `
models:
  - name: t1
    deployments: [{name: p, url: "PROVIDER/v1", dialect: openai, credential: "provider-secret", price: {input: 1, output: 10}}]
  - name: plain
    deployments: [{name: q, url: "PROVIDER/v1", dialect: openai, credential: "provider-secret", stream_usage: false, price: {input: 1, output: 10}}]
keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 100, per: day}], tpm: 10000000, parallel: 50}}]
`

// TestE29StreamOptions wants the usage that tollgate asks for to be its own affair: the client sees the chunk only when
// it asked for it.
func TestE29StreamOptions(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, streamKeys)
	rng := rand.New(rand.NewPCG(29, 1))
	p.Script(func(h providertest.Hit) providertest.Reply {
		var q struct {
			Stream        bool
			StreamOptions struct {
				IncludeUsage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		_ = json.Unmarshal(h.Body, &q) // a body that is no JSON fails the test by its comparison
		switch {
		case !q.Stream:
			return providertest.JSON(200, `{"choices":[{"index":0,"message":{"content":"Hé"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5}}`)
		case q.StreamOptions.IncludeUsage:
			return randomly(rng, events(helloChunk, finishChunk, usageChunk, "[DONE]"))
		}
		return randomly(rng, events(helloChunk, finishChunk, "[DONE]"))
	})
	without, with := events(helloChunk, finishChunk, "[DONE]"), events(helloChunk, finishChunk, usageChunk, "[DONE]")
	const body = `{"model":"t1","messages":[]%s}`
	total := 0
	for _, tt := range []struct {
		name, model   string
		members, sent string // sent: as the provider gets them; "" is unchanged
		want          string // "": the JSON answer
		estimated     bool
	}{
		{"a: no stream_options", "t1", `,"stream":true`, `,"stream":true,"stream_options":{"include_usage":true}`, without, false},
		{"b: false", "t1", `,"stream":true,"stream_options":{"include_usage":false}`, `,"stream":true,"stream_options":{"include_usage":true}`, without, false},
		{"c: true", "t1", `,"stream":true,"stream_options":{"include_usage":true}`, "", with, false},
		{"d: null", "t1", `,"stream":true,"stream_options":null`, `,"stream":true,"stream_options":{"include_usage":true}`, without, false},
		{"e: another option", "t1", `,"stream":true,"stream_options":{"x_vendor":1}`, `,"stream":true,"stream_options":{"include_usage":true,"x_vendor":1}`, without, false},
		{"f: stream false", "t1", `,"stream":false`, "", "", false},
		{"g: no stream", "t1", ``, "", "", false},
		{"h: not supported", "plain", `,"stream":true`, "", without, true},
	} {
		for range 3 { // boundaries are random
			p.Reset()
			sent := tt.sent
			if sent == "" {
				sent = tt.members
			}
			got := r.chat("sk-test-a", strings.Replace(fmt.Sprintf(body, tt.members), "t1", tt.model, 1))
			total++
			want := strings.Replace(fmt.Sprintf(body, sent), "t1", tt.model, 1)
			if hits := p.Hits(); len(hits) != 1 || string(hits[0].Body) != want {
				t.Errorf("%s: the provider got %+v, want %s", tt.name, hits, want)
			}
			if got.Status != 200 || tt.want != "" && got.Body != tt.want {
				t.Errorf("%s: the client got %d\n%q, want\n%q", tt.name, got.Status, got.Body, tt.want)
			}
			last := newest(s.settled(total))
			if last.Estimated != tt.estimated || !tt.estimated && (last.Input != 7 || last.Output != 5 || last.CostNano != 57_000) {
				t.Errorf("%s: record %+v", tt.name, last)
			}
			if tt.estimated && (last.CostNano <= 0 || last.Output <= 0) {
				t.Errorf("%s: a free call: %+v", tt.name, last)
			}
		}
	}
}

// newest is the record of the call admitted last.
func newest(list []ledger.Record) ledger.Record {
	var last ledger.Record
	for _, r := range list {
		if r.ID > last.ID { // UUIDv7 sort by time
			last = r
		}
	}
	return last
}

// TestE55Framing writes one stream in every way the event stream format allows, cut at random, at each byte and not at
// all. The client gets the provider's bytes, but for the usage chunk it did not ask for.
func TestE55Framing(t *testing.T) {
	t.Parallel()
	whole, bare := events(helloChunk, finishChunk, usageChunk, "[DONE]"), events(helloChunk, finishChunk, "[DONE]")
	twoLines := "data: " + strings.Replace(usageChunk, `,"usage"`, ",\ndata: \"usage\"", 1) + "\n\n"
	framings := []struct{ name, stream, want string }{
		{"lf", whole, bare},
		{"crlf", strings.ReplaceAll(whole, "\n", "\r\n"), strings.ReplaceAll(bare, "\n", "\r\n")},
		{"cr", strings.ReplaceAll(whole, "\n", "\r"), strings.ReplaceAll(bare, "\n", "\r")},
		{"mixed", "data: " + helloChunk + "\n\r\ndata: " + finishChunk + "\r\n\ndata: " + usageChunk + "\r\r\ndata: [DONE]\r\n\r",
			"data: " + helloChunk + "\n\r\ndata: " + finishChunk + "\r\n\ndata: [DONE]\r\n\r"},
		{"no space", strings.ReplaceAll(whole, "data: ", "data:"), strings.ReplaceAll(bare, "data: ", "data:")},
		{"comments", ": keep-alive\n\n" + events(helloChunk, finishChunk) + ": x\n\n" + events(usageChunk) + ":\n\n" + events("[DONE]"),
			": keep-alive\n\n" + events(helloChunk, finishChunk) + ": x\n\n:\n\n" + events("[DONE]")},
		{"other fields", "event: message\nid: 1\nretry: 5\n" + events(helloChunk, finishChunk) + "id: 2\ndata: " + usageChunk + "\n\n" + events("[DONE]"),
			"event: message\nid: 1\nretry: 5\n" + bare},
		{"two data lines", events(helloChunk, finishChunk) + twoLines + events("[DONE]"), bare},
		{"byte order mark", "\xEF\xBB\xBF" + whole, "\xEF\xBB\xBF" + bare},
		{"usage after done", events(helloChunk, finishChunk, "[DONE]", usageChunk), bare},
		{"no done", events(helloChunk, finishChunk, usageChunk), events(helloChunk, finishChunk)},
		{"no last blank line", strings.TrimRight(whole, "\n"), strings.TrimRight(bare, "\n")},
		{"usage last, no blank line", strings.TrimRight(events(helloChunk, finishChunk, usageChunk), "\n"), events(helloChunk, finishChunk)},
	}
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, streamKeys)
	rng := rand.New(rand.NewPCG(55, 1))
	total := 0
	for _, tt := range framings {
		replies := []providertest.Reply{
			randomly(rng, tt.stream), randomly(rng, tt.stream),
			{Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}, Chunks: providertest.Split([]byte(tt.stream), 1)},
			{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: []byte(tt.stream)}, // with its length
		}
		for i, reply := range replies {
			p.Answer(reply)
			if got := r.chat("sk-test-a", `{"model":"t1","stream":true,"messages":[]}`); got.Status != 200 || got.Body != tt.want {
				t.Errorf("%s, split %d, stripped: the client got\n%q, want\n%q", tt.name, i, got.Body, tt.want)
			}
			got := r.chat("sk-test-a", `{"model":"t1","stream":true,"stream_options":{"include_usage":true},"messages":[]}`)
			if got.Status != 200 || got.Body != tt.stream {
				t.Errorf("%s, split %d, as it came: the client got\n%q, want\n%q", tt.name, i, got.Body, tt.stream)
			}
			total += 2
		}
	}
	for _, rec := range s.settled(total) {
		if rec.Input != 7 || rec.Output != 5 || rec.Estimated || rec.Outcome != ledger.Complete || rec.CostNano != 57_000 {
			t.Errorf("record %+v, want 7/5, complete, 57,000 nano-dollars", rec)
		}
	}
}

// TestE56UTF8 cuts text of many bytes a character at each of its bytes while stripping is on, and sends bytes that are
// no UTF-8 at all.
func TestE56UTF8(t *testing.T) {
	t.Parallel()
	text := "漢字かな 👩‍👩‍👧🏳️‍🌈 שלום مرحبا e\u0301 \xC3\x28 \xF0\x9F"
	content := events(`{"choices":[{"index":0,"delta":{"content":"` + text + `"}}]}`)
	stream := content + events(finishChunk, usageChunk, "[DONE]")
	want := sha256.Sum256([]byte(content + events(finishChunk, "[DONE]")))
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, streamKeys)
	total := 0
	for cut := strings.Index(stream, "漢"); cut <= strings.Index(stream, `"}}]}`); cut++ {
		reply := providertest.SSE()
		reply.Chunks = []providertest.Chunk{{Data: []byte(stream[:cut])}, {After: 2 * time.Millisecond, Data: []byte(stream[cut:])}}
		p.Answer(reply)
		got := r.chat("sk-test-a", `{"model":"t1","stream":true,"messages":[]}`)
		if sha256.Sum256([]byte(got.Body)) != want || strings.Contains(got.Body, "\uFFFD") {
			t.Fatalf("cut at %d: the client got\n%q", cut, got.Body)
		}
		total++
	}
	for _, rec := range s.settled(total) {
		if rec.Input != 7 || rec.Output != 5 || rec.Estimated {
			t.Errorf("record %+v, want 7/5", rec)
		}
	}
}

// h2Upstream makes the deployments speak HTTP/2 in the clear, as Envoy does to providers after TLS.
func h2Upstream(boot string) string {
	return strings.ReplaceAll(boot, "http_protocol_options: {}", "http2_protocol_options: {}")
}

// h2Server is a provider that speaks HTTP/2 in the clear.
func h2Server(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// h2Client speaks HTTP/2 in the clear, with prior knowledge.
func h2Client(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 60 * time.Second}
}

// side is the version of HTTP that a client and a provider speak.
type side struct {
	name               string
	clientH2, serverH2 bool
}

var sides = []side{
	{"h1 to h1", false, false}, {"h2 to h1", true, false}, {"h1 to h2", false, true}, {"h2 to h2", true, true},
}

// TestE58LengthAndLatency streams over both versions of HTTP on both sides: no header of the provider's framing may reach
// the client, and no event may wait for the next.
func TestE58LengthAndLatency(t *testing.T) {
	t.Parallel()
	for _, x := range sides {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			e := newTimedProvider(t, x.serverH2)
			var edit []func(string) string
			if x.serverH2 {
				edit = append(edit, h2Upstream)
			}
			r := startReplica(t, nil, nil, strings.ReplaceAll(streamKeys, "PROVIDER", e.URL), edit...)
			c := client(t)
			if x.clientH2 {
				c = h2Client(t)
			}
			e.checkPaced(t, r, c)
			e.checkLength(t, r, c, x)
			e.checkBodiless(t, r, c)
		})
	}
}

// timedProvider answers with what the test set last, over either version of HTTP.
type timedProvider struct {
	*httptest.Server
	next atomic.Pointer[http.HandlerFunc]
}

func newTimedProvider(t *testing.T, h2 bool) *timedProvider {
	t.Helper()
	p := &timedProvider{}
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		(*p.next.Load())(w, r)
	}
	if h2 {
		p.Server = h2Server(t, handler)
		return p
	}
	p.Server = httptest.NewServer(http.HandlerFunc(handler))
	t.Cleanup(p.Close)
	return p
}

func (p *timedProvider) answer(h http.HandlerFunc) { p.next.Store(&h) }

// call makes a streaming chat call.
func (p *timedProvider) call(t *testing.T, r *replica, c *http.Client) *http.Response {
	t.Helper()
	req := r.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(`{"model":"t1","stream":true,"messages":[]}`))
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// checkPaced sends five events, 500 ms apart and each only when the one before it has arrived: none may wait for the next.
func (p *timedProvider) checkPaced(t *testing.T, r *replica, c *http.Client) {
	t.Helper()
	const count, gap, patience = 5, 500 * time.Millisecond, 20 * time.Second
	sent, came := make([]time.Time, count), make(chan time.Time, count)
	late := make([]time.Duration, 0, count)
	done := make(chan struct{})
	p.answer(func(w http.ResponseWriter, _ *http.Request) {
		defer close(done)
		w.Header().Set("content-type", "text/event-stream")
		for i := range count {
			sent[i] = time.Now()
			_, _ = io.WriteString(w, events(helloChunk))
			w.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's own
			select {
			case at := <-came:
				late = append(late, at.Sub(sent[i]))
			case <-time.After(patience):
				return // the stream is cut, and the test fails
			}
			time.Sleep(time.Until(sent[i].Add(gap)))
		}
		_, _ = io.WriteString(w, events(finishChunk, usageChunk, "[DONE]"))
	})
	resp := p.call(t, r, c)
	event := make([]byte, len(events(helloChunk)))
	for i := range count {
		if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != events(helloChunk) {
			t.Fatalf("event %d: %q, %v", i, event, err)
		}
		came <- time.Now()
	}
	rest, err := io.ReadAll(resp.Body)
	if err != nil || string(rest) != events(finishChunk, "[DONE]") {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	<-done
	slices.Sort(late)
	if late[count/2] > 300*time.Millisecond { // the median: other tests may stall one of them
		t.Errorf("the events came %v after they were sent", late)
	}
}

// checkLength wants a stream whose provider declares its length to arrive whole: less the usage chunk, under no length that
// no longer fits.
func (p *timedProvider) checkLength(t *testing.T, r *replica, c *http.Client, x side) {
	t.Helper()
	whole := events(helloChunk, finishChunk, usageChunk, "[DONE]")
	p.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "text/event-stream")
		w.Header().Set("content-length", fmt.Sprint(len(whole)))
		_, _ = io.WriteString(w, whole)
	})
	resp := p.call(t, r, c)
	body, err := io.ReadAll(resp.Body)
	if want := events(helloChunk, finishChunk, "[DONE]"); err != nil || string(body) != want {
		t.Errorf("the client got %q, %v, want %q", body, err, want)
	}
	if resp.ContentLength >= 0 {
		t.Errorf("content-length %d", resp.ContentLength)
	}
	if chunked := len(resp.TransferEncoding) > 0; chunked == x.clientH2 {
		t.Errorf("transfer-encoding %v", resp.TransferEncoding)
	}
	if h := resp.Header; h.Get("transfer-encoding") != "" || h.Get("content-length") != "" || h.Get("connection") != "" {
		t.Errorf("hop-by-hop headers: %v", h)
	}
}

// checkBodiless wants answers without a body to stay so.
func (p *timedProvider) checkBodiless(t *testing.T, r *replica, c *http.Client) {
	t.Helper()
	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		p.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		resp := p.call(t, r, c)
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != status || len(body) != 0 || err != nil || len(resp.TransferEncoding) > 0 {
			t.Errorf("answer = %d %q %v, transfer-encoding %v, want %d", resp.StatusCode, body, err, resp.TransferEncoding, status)
		}
	}
}

// TestE58LargeAnswer passes an answer of 20 MB on in memory that does not grow with it.
func TestE58LargeAnswer(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startSeparate(t, s, p, streamKeys)
	answer := `{"choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("words ", 20<<20/6) +
		`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5}}`
	p.Answer(providertest.JSON(200, answer))
	if got := r.chat("sk-test-a", `{"model":"t1","messages":[]}`); got.Body != answer { // warms the process up
		t.Fatalf("%d bytes of %d arrived", len(got.Body), len(answer))
	}
	before := r.memory("VmHWM")
	for range 3 {
		if got := r.chat("sk-test-a", `{"model":"t1","messages":[]}`); !bytes.Equal([]byte(got.Body), []byte(answer)) {
			t.Fatalf("%d bytes of %d arrived", len(got.Body), len(answer))
		}
	}
	if most := r.memory("VmHWM"); most > before+16<<20 || most > 120<<20 {
		t.Errorf("tollgate held %d MiB, after the first answer %d MiB", most>>20, before>>20)
	}
	for _, rec := range s.settled(4) {
		if rec.Input != 7 || rec.Output != 5 || rec.Estimated {
			t.Errorf("record %+v, want 7/5", rec)
		}
	}
}
