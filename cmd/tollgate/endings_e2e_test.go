package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// endingModels are the models of the endings: "e/<anything>" at $1 in and $10 out, one without an upstream, and one
// whose deployment counts.
const endingModels = `
cache: {ttl: 60s, scope: key}
models:
  - {name: "e/*", deployments: [{name: e, url: "PROVIDER/v1", dialect: openai, price: {input: 1, output: 10}}]}
  - {name: unreachable, deployments: [{name: u, url: "http://UNREACHABLE/v1", dialect: openai, price: {input: 1, output: 10}}]}
  - {name: counted, deployments: [{name: c, url: "PROVIDER/v1", dialect: openai, rpm: 1000, tpm: 1000000, price: {input: 1, output: 10}}]}
`

// unreachable is an address that nobody listens on.
func unreachable(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// scene is where an ending is played: one replica, one provider, one key at a time.
type scene struct {
	*testing.T
	*stores
	*replica
	p   *providertest.Provider
	key string // the secret
}

// Fatal comes from the test at hand, not from the one that started the replica.
func (x *scene) Fatal(args ...any) {
	x.Helper()
	x.T.Fatal(args...)
}

var asked atomic.Int64

// body is a request that no other is the same as, with a cap of 100 tokens; more goes into the object.
func body(model, more string) string {
	return fmt.Sprintf(`{"model":%q,"max_tokens":100,"messages":[{"role":"user","content":"hello %d"}]%s}`, model, 1_000_000+asked.Add(1), more)
}

const streamed = `,"stream":true,"stream_options":{"include_usage":true}`

// estimate is the input estimate of a body, for a model that nothing was learned of.
func estimate(t *testing.T, body string) int64 {
	t.Helper()
	req, err := usage.ParseChat([]byte(body), usage.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	return req.InputTokens
}

// whole makes a request and reads the answer, if there is one.
func (x *scene) whole(body string) sent {
	return send(x.Context(), client(x.T), x.Envoy.URL(""), x.key, body)
}

// leaveWhen makes a request and leaves when something has come about.
func (x *scene) leaveWhen(body, what string, is func() bool) {
	x.Helper()
	ctx, cancel := context.WithCancel(x.Context())
	defer cancel()
	done := make(chan sent, 1)
	go func() { done <- send(ctx, client(x.T), x.Envoy.URL(""), x.key, body) }()
	waitFor(x.T, what, is)
	cancel()
	if a := <-done; a.err == nil {
		x.Errorf("answer before the client left = %+v", a)
	}
}

// leaveAfter makes a request, reads until some text has come, and leaves.
func (x *scene) leaveAfter(body, text string) {
	x.Helper()
	ctx, cancel := context.WithCancel(x.Context())
	defer cancel()
	resp, err := client(x.T).Do(x.newRequest(ctx, http.MethodPost, "/v1/chat/completions", x.key, strings.NewReader(body)))
	if err != nil {
		x.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var got []byte
	piece := make([]byte, 4096)
	for !strings.Contains(string(got), text) {
		n, err := resp.Body.Read(piece)
		got = append(got, piece[:n]...)
		if err != nil {
			x.Fatalf("after %q: %v", got, err)
		}
	}
}

// event is a chunk of a stream with ten tokens' worth of text; more goes into the object.
func event(more string) string {
	return `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"` + strings.Repeat("word", 10) +
		`"},"finish_reason":null}]` + more + `}`
}

const (
	lastEvent  = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageEvent = `data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":30,"total_tokens":50}}`
	someUsage  = `,"usage":{"prompt_tokens":20,"completion_tokens":3,"total_tokens":23}`
	errorEvent = `data: {"error":{"message":"overloaded","type":"server_error"}}`
	errorBody  = `{"error":{"message":"no","type":"invalid_request_error"}}`
)

// broken is a reply that ends early.
func broken(r providertest.Reply, how providertest.Break) providertest.Reply {
	r.Break = how
	return r
}

// estimated stands, in an ending's tokens, for the input estimate.
const estimated = -1

// ending is a row of governance.md "What each ending charges".
type ending struct {
	name  string
	model string // "" for one of its own
	more  string // of the request's body
	reply providertest.Reply
	end   func(x *scene, body string)

	outcome ledger.Outcome
	status  int
	guessed bool // the record says that it is an estimate
	in, out int64
}

func readWhole(x *scene, body string) { x.whole(body) }

func endings() []ending {
	text := func(more string) string {
		return `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"` +
			strings.Repeat("word", 10) + `"},"finish_reason":"stop"}]` + more + `}`
	}
	reached := func(x *scene, body string) {
		x.leaveWhen(body, "the request to reach the provider", func() bool { return x.p.InFlight() == 1 })
	}
	midStream := func(x *scene, body string) { x.leaveAfter(body, "wordword") }
	return []ending{
		{name: "2xx with usage", reply: providertest.JSON(200, text(`,"usage":{"prompt_tokens":20,"completion_tokens":30,"total_tokens":50}`)),
			end: readWhole, outcome: ledger.Complete, status: 200, in: 20, out: 30},
		{name: "stream with usage", more: streamed, reply: providertest.SSE(event(""), lastEvent, usageEvent, "data: [DONE]"),
			end: readWhole, outcome: ledger.Complete, status: 200, in: 20, out: 30},
		{name: "2xx without usage", reply: providertest.JSON(200, text("")),
			end: readWhole, outcome: ledger.Complete, status: 200, guessed: true, in: estimated, out: 10},
		{name: "stream without usage", more: streamed, reply: providertest.SSE(event(""), event(""), lastEvent, "data: [DONE]"),
			end: readWhole, outcome: ledger.Complete, status: 200, guessed: true, in: estimated, out: 20},
		{name: "client gone before the request went up", end: leaveDuringAdmission, outcome: ledger.Abandoned},
		{name: "client gone before the answer", reply: providertest.Reply{Break: providertest.HangBeforeHeaders},
			end: reached, outcome: ledger.Abandoned, guessed: true, in: estimated},
		{name: "client gone in mid-stream", more: streamed, reply: broken(providertest.SSE(event("")), providertest.HangAfterBody),
			end: midStream, outcome: ledger.Partial, status: 200, guessed: true, in: estimated, out: 10},
		{name: "client gone in mid-stream after usage", more: streamed, reply: broken(providertest.SSE(event(someUsage)), providertest.HangAfterBody),
			end: midStream, outcome: ledger.Partial, status: 200, in: 20, out: 3},
		{name: "client gone in mid-stream after more than was reserved", more: streamed,
			reply: broken(providertest.SSE(strings.Replace(event(""), "word", strings.Repeat("long", 200), 1)), providertest.HangAfterBody),
			end:   midStream, outcome: ledger.Partial, status: 200, guessed: true, in: estimated, out: 209},
		{name: "client gone after the last byte", more: streamed,
			reply: broken(providertest.SSE(event(""), lastEvent, usageEvent, "data: [DONE]"), providertest.HangAfterBody),
			end:   func(x *scene, body string) { x.leaveAfter(body, "[DONE]") }, outcome: ledger.Complete, status: 200, in: 20, out: 30},
		{name: "upstream 400", reply: providertest.JSON(400, errorBody), end: readWhole, outcome: ledger.Failed, status: 400},
		{name: "upstream 429", reply: providertest.JSON(429, errorBody), end: readWhole, outcome: ledger.Failed, status: 429},
		{name: "upstream 500", reply: providertest.JSON(500, errorBody), end: readWhole, outcome: ledger.Failed, status: 500},
		{name: "upstream 500 with usage", reply: providertest.JSON(500, `{"error":{"message":"late"},"usage":{"prompt_tokens":20,"completion_tokens":3}}`),
			end: readWhole, outcome: ledger.Failed, status: 500, in: 20, out: 3},
		{name: "upstream reset", reply: providertest.Reply{Break: providertest.ResetBeforeHeaders}, end: readWhole, outcome: ledger.Failed, status: 503},
		{name: "upstream refuses the connection", model: "unreachable", end: readWhole, outcome: ledger.Failed, status: 503},
		// What the reset overtakes is a comment: the last piece of such a stream may be lost on the way.
		{name: "upstream resets in mid-stream", more: streamed,
			reply: broken(providertest.SSE(event(""), event(""), ": still there").Paced(50*time.Millisecond), providertest.ResetAfterBody), end: readWhole, outcome: ledger.Partial, status: 200, guessed: true, in: estimated, out: 20},
		{name: "error inside a 200 stream", more: streamed, reply: providertest.SSE(event(""), errorEvent),
			end: readWhole, outcome: ledger.Failed, status: 200},
		{name: "error inside a 200 stream after usage", more: streamed, reply: providertest.SSE(event(someUsage), errorEvent),
			end: readWhole, outcome: ledger.Failed, status: 200, in: 20, out: 3},
	}
}

// leaveDuringAdmission leaves while the admission is under way: Redis takes long, and nothing goes upstream.
func leaveDuringAdmission(x *scene, body string) {
	x.Proxy.Delay(300 * time.Millisecond)
	before := len(x.p.Hits())
	ctx, cancel := context.WithTimeout(x.Context(), 100*time.Millisecond)
	defer cancel()
	if a := send(ctx, client(x.T), x.Envoy.URL(""), x.key, body); a.err == nil {
		x.Errorf("answer before the client left = %+v", a)
	}
	waitFor(x.T, "the grant to be settled", func() bool { return x.metric("tollgate_calls_in_flight") == 0 })
	x.Proxy.Delay(0)
	if n := len(x.p.Hits()); n != before {
		x.Errorf("%d requests reached the provider", n-before)
	}
}

// play makes the request of an ending and sees to it that it ends so. It returns the body.
func (e ending) play(x *scene, i int) string {
	x.Helper()
	model := e.model
	if model == "" {
		model = fmt.Sprintf("e/%d", i)
	}
	b := body(model, e.more)
	if e.model == "" && e.outcome != ledger.Abandoned || e.reply.Break != "" {
		x.p.Queue(e.reply)
	}
	e.end(x, b)
	return b
}

// TestEndingsCharge plays each ending once and compares all books with the table.
func TestEndingsCharge(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	list := endings()
	var keys strings.Builder
	for i := range len(list) + 1 {
		fmt.Fprintf(&keys, "  - {id: k%d, secret: sk-test-%d, limits: {budgets: [{usd: 100, per: lifetime}, {tokens: 100000, per: lifetime}, "+
			"{requests: 100, per: lifetime}], rpm: 1000, tpm: 1000000, parallel: 2}}\n", i, i)
	}
	r := startReplica(t, s, p, strings.ReplaceAll(endingModels, "UNREACHABLE", unreachable(t))+"keys:\n"+keys.String())
	for i, e := range list {
		t.Run(e.name, func(t *testing.T) {
			x := &scene{T: t, stores: s, replica: r, p: p, key: fmt.Sprintf("sk-test-%d", i)}
			body := e.play(x, i)
			id := fmt.Sprintf("k%d", i)
			record := s.recordsOf(id, 1)[0]
			in := e.in
			if in == estimated {
				in = estimate(t, body)
			}
			cost := in*1000 + e.out*10_000
			if reserved := estimate(t, body)*1000 + 100*10_000; e.guessed && cost > reserved {
				cost = reserved // never more than the reservation by guess
			}
			if record.Outcome != e.outcome || record.Status != e.status || record.Estimated != e.guessed || record.CostNano != cost ||
				record.Input != in || record.Output != e.out {
				t.Errorf("record = %+v\nwant %s %d, estimated %t, %d tokens in, %d out, %d nano-dollars", record, e.outcome, e.status, e.guessed, in, e.out, cost)
			}
			s.wantEnded(t, id, cost, in+e.out, 1, in+e.out, 1)
		})
	}
	t.Run("cache hit", func(t *testing.T) {
		id := fmt.Sprintf("k%d", len(list))
		x := &scene{T: t, stores: s, replica: r, p: p, key: "sk-test-" + id[1:]}
		b := body("counted", "")
		p.Queue(providertest.JSON(200, strings.Replace(errorBody, `"error":`, `"choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":20,"completion_tokens":30,"total_tokens":50},"x":`, 1)))
		x.whole(b)
		s.recordsOf(id, 1)
		hits := len(p.Hits())
		if got := x.whole(b); got.Status != 200 || got.Header.Get("x-tollgate-cache") != "hit" || len(p.Hits()) != hits {
			t.Fatalf("second answer = %+v", got)
		}
		hit := 0
		for _, record := range s.recordsOf(id, 2) {
			if record.Outcome == ledger.CacheHit {
				hit++
				if record.CostNano != 0 || record.Input != 0 || record.Output != 0 || record.Status != 200 || record.Estimated || record.Deployment != "" {
					t.Errorf("record = %+v", record)
				}
			}
		}
		if hit != 1 {
			t.Errorf("%d records of a cache hit", hit)
		}
		s.wantEnded(t, id, 20*1000+30*10_000, 50, 2, 50, 2)
		if requests, tokens := s.window("tg:{m:counted}:r:deployment:c"); requests != 1 || tokens != 50 {
			t.Errorf("the deployment counts %d requests, %d tokens; want 1, 50: it served once", requests, tokens)
		}
	})
	if n := r.metric("tollgate_leases_held"); n != 0 {
		t.Errorf("tollgate_leases_held = %v", n)
	}
}

// wantEnded compares all counters of a key of which nothing is in flight.
func (s *stores) wantEnded(t *testing.T, id string, nano, tokens, requests, windowTokens, windowRequests int64) {
	t.Helper()
	for field, want := range map[string]int64{"ulifetime": nano, "tlifetime": tokens, "rlifetime": requests} {
		if spent, reserved := s.budget(scopeKey("b", "key", id), field); spent != want || reserved != 0 {
			t.Errorf("%s: spent %d, reserved %d; want %d, 0", field, spent, reserved, want)
		}
	}
	if n, k := s.window(scopeKey("r", "key", id)); n != windowRequests || k != windowTokens {
		t.Errorf("window: %d requests, %d tokens; want %d, %d", n, k, windowRequests, windowTokens)
	}
	if n := s.leases(scopeKey("l", "key", id)); n != 0 {
		t.Errorf("%d slots are not free", n)
	}
}

// TestE26AbortedStreams drains a budget with streams that the client leaves after 300 of 1,000 tokens, before usage.
func TestE26AbortedStreams(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, t1+`keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 0.05, per: lifetime}], parallel: 1}}]`)
	chunks := make([]string, 30)
	for i := range chunks {
		chunks[i] = event("")
	}
	p.Answer(broken(providertest.SSE(append(chunks, strings.Replace(event(""), "wordword", "word the end", 1))...), providertest.HangAfterBody))
	x := &scene{T: t, stores: s, replica: r, p: p, key: "sk-test-a"}
	b := strings.TrimSuffix(ask(1000), "}") + `,"stream":true}`
	spent, served := int64(0), 0
	for range 20 {
		resp, err := client(t).Do(r.newRequest(t.Context(), http.MethodPost, "/v1/chat/completions", x.key, strings.NewReader(b)))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 {
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			refusedAs(t, answered{resp.StatusCode, resp.Header, string(text)}, "key/k budget lifetime")
			continue
		}
		served++
		var got []byte
		piece := make([]byte, 4096)
		for !strings.Contains(string(got), "the end") {
			n, err := resp.Body.Read(piece)
			if got = append(got, piece[:n]...); err != nil {
				t.Fatal(err)
			}
		}
		_ = resp.Body.Close()
		s.settled(served)
		now, reserved := s.budget(scopeKey("b", "key", "k"), "ulifetime")
		if now <= spent || reserved != 0 {
			t.Errorf("stream %d: spent %d after %d, reserved %d", served, now, spent, reserved)
		}
		spent = now
	}
	// 31 events of about ten tokens each are 0.0031 dollars: 13 leave less than a reservation of 0.01.
	if served != 13 {
		t.Errorf("%d streams were served, want 13", served)
	}
	sum := int64(0)
	for _, record := range s.settled(served) {
		sum += record.CostNano
		if record.Outcome != ledger.Partial || !record.Estimated || record.Output < 300 || record.CostNano != record.Output*10_000 || record.CostNano > cent {
			t.Errorf("record = %+v", record)
		}
	}
	if sum != spent {
		t.Errorf("the records say %d, the counter %d", sum, spent)
	}
	if n := s.leases(scopeKey("l", "key", "k")); n != 0 {
		t.Errorf("%d slots are not free", n)
	}
}

// TestE32SlotsAreFreed plays every ending ten times on a key that may have one request in flight, and wants the next
// request to be served after each.
func TestE32SlotsAreFreed(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, strings.ReplaceAll(endingModels, "UNREACHABLE", unreachable(t))+`
  - {name: narrow, deployments: [{name: n, url: "PROVIDER/v1", dialect: openai, rpm: 3, price: {input: 1, output: 10}}]}
teams: [{id: team, limits: {parallel: 1}}]
keys:
  - {id: k, secret: sk-test-k, team: team, limits: {parallel: 1, budgets: [{usd: 100, per: lifetime}]}}
  - {id: slow, secret: sk-test-slow, limits: {parallel: 1, rpm: 3}}
`)
	x := &scene{T: t, stores: s, replica: r, p: p, key: "sk-test-k"}
	// next wants a normal request to be served within two seconds.
	next := func(leg string, round int) {
		t.Helper()
		var got sent
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if got = x.whole(body("e/next", "")); got.Status == 200 {
				waitFor(t, "its own slot to be free", func() bool { return s.leases("tg:{t:team}:l:team:team") == 0 })
				return
			}
		}
		t.Fatalf("%s, round %d: the next request is not served: %+v", leg, round, got)
	}
	for i, e := range endings() {
		for round := range 10 {
			e.play(x, i)
			next(e.name, round)
		}
	}
	status := func(want ...int) func(a sent) {
		return func(a sent) {
			t.Helper()
			for _, w := range want {
				if a.err == nil && a.Status == w {
					return
				}
			}
			t.Errorf("answer = %+v, want %v", a, want)
		}
	}
	cached := body("counted", "")
	for _, leg := range []struct {
		name string
		play func()
	}{
		{"malformed body", func() { status(400)(x.whole(`{"model":"e/1",`)) }},
		{"unknown model", func() { status(404)(x.whole(body("nobody", ""))) }},
		{"deployment at its rpm", func() { status(200, 429)(x.whole(body("narrow", ""))) }},
		{"cache hit", func() { status(200)(x.whole(cached)) }},
		{"preflight", func() {
			req := r.newRequest(t.Context(), http.MethodOptions, "/v1/chat/completions", x.key, nil)
			req.Header.Set("origin", "https://example.com")
			req.Header.Set("access-control-request-method", "POST")
			if got := r.do(req); got.Status < 400 || got.Status > 499 {
				t.Errorf("preflight = %+v", got)
			}
		}},
		{"client gone during the upload", func() { x.leaveDuringUpload() }},
	} {
		for round := range 10 {
			leg.play()
			next(leg.name, round)
		}
	}
	// Refused by the key's own rpm, a leaked slot would show as the limit that refused: parallel is named before rpm.
	x.key = "sk-test-slow"
	for round := range 10 {
		switch a := x.whole(body("e/slow", "")); {
		case round < 3:
			status(200)(a)
			s.recordsOf("slow", round+1)
		default:
			refusedAs(t, a.answered, "key/slow rpm")
		}
	}
	waitFor(t, "the last slot to be free", func() bool {
		return r.metric("tollgate_leases_held") == 0 && r.metric("tollgate_calls_in_flight") == 0 &&
			s.leases("tg:{t:team}:l:key:k")+s.leases("tg:{t:team}:l:team:team")+s.leases("tg:{k:slow}:l:key:slow") == 0
	})
	if _, reserved := s.budget("tg:{t:team}:b:key:k", "ulifetime"); reserved != 0 {
		t.Errorf("%d nano-dollars are still reserved", reserved)
	}
}

// leaveDuringUpload sends half a body and closes the connection.
func (x *scene) leaveDuringUpload() {
	x.Helper()
	conn, err := net.Dial("tcp", x.Envoy.Addr())
	if err != nil {
		x.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	b := body("e/upload", "")
	_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\n"+
		"content-length: %d\r\n\r\n%s", x.key, len(b), b[:len(b)/2])
	if err != nil {
		x.Fatal(err)
	}
	waitFor(x.T, "the call to begin", func() bool { return x.metric("tollgate_calls_in_flight") > 0 })
}

// TestProcessKilled kills a tollgate with a request in flight. Its reservation and its slots are held until the lease has
// run out; then another replica gives them back and writes the record, however late it comes.
func TestProcessKilled(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	const text = t1 + `
teams: [{id: team, limits: {budgets: [{usd: 1, per: month}], parallel: 10}}]
keys: [{id: k, secret: sk-test-a, team: team, limits: {budgets: [{usd: 0.01, per: lifetime}, {requests: 5, per: month}], rpm: 100, tpm: 100000, parallel: 1}}]
`
	victim, heir := startProcess(t, s, p, text), startReplica(t, s, p, text)
	p.Queue(providertest.Reply{Break: providertest.HangBeforeHeaders})
	cut := make(chan sent, 1)
	go func() { cut <- send(context.Background(), client(t), victim.Envoy.URL(""), "sk-test-a", ask(1000)) }()
	waitFor(t, "the request to reach the provider", func() bool { return p.InFlight() == 1 })
	victim.Kill()
	killed := time.Now()
	if a := <-cut; a.err == nil && a.Status < 500 {
		t.Errorf("the client of a killed process got %+v", a)
	}
	const budget, slots = "tg:{t:team}:b:key:k", "tg:{t:team}:l:key:k"
	s.wantBudget(budget, "ulifetime", 0, cent)
	refusedAs(t, heir.chat("sk-test-a", ask(1000)), "key/k budget lifetime")
	// Longer than the lease: nobody may have asked in the second in which it ran out.
	waitUntil(killed.Add(34 * time.Second))
	passes(t, heir.chat("sk-test-a", ask(1000)))
	s.settled(2)
	s.wantBudget(budget, "ulifetime", cent, 0)
	s.wantBudget(budget, "rmonth", 1, 0)
	s.wantBudget("tg:{t:team}:b:team:team", "umonth", cent, 0)
	if n := s.leases(slots) + s.leases("tg:{t:team}:l:team:team"); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if requests, _ := s.window("tg:{t:team}:r:key:k"); requests != 2 { // rpm counts the dead one's too
		t.Errorf("%d requests in the window, want 2", requests)
	}
	lost := 0
	for _, record := range s.records() {
		if record.Outcome == ledger.Lost {
			lost++
			if record.Key != "k" || record.Team != "team" || record.CostNano != 0 || record.Reserved != cent ||
				time.Since(record.AdmittedAt) > 5*time.Minute || record.ID == "" {
				t.Errorf("record = %+v", record)
			}
		}
	}
	if lost != 1 {
		t.Errorf("%d records of a lost request, want 1", lost)
	}
}
