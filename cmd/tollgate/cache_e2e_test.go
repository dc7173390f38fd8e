package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
)

// cached is a replica whose provider numbers its answers, so that a repeated one shows.
type cached struct {
	*replica
	stores   *stores
	provider *providertest.Provider
	served   atomic.Int64
}

const tenants = `
teams: [{id: red}, {id: blue}]
keys:
  - {id: k1, secret: sk-test-1, team: red, limits: {budgets: [{usd: 1, per: day}], rpm: 1000, tpm: 1000000, parallel: 1}}
  - {id: k2, secret: sk-test-2, team: blue}
  - {id: k3, secret: sk-test-3, team: red}
  - {id: k4, secret: sk-test-4, team: red, cache: {scope: key}}
  - {id: k5, secret: sk-test-5}
  - {id: k6, secret: sk-test-6, team: red, models: ["!t1"]}
  - {id: k7, secret: sk-test-7, team: red, blocked: true}
`

func startCached(t *testing.T, rule, rest string) *cached {
	t.Helper()
	c := &cached{stores: newStores(t), provider: providertest.New(t)}
	c.provider.Script(func(h providertest.Hit) providertest.Reply {
		content := fmt.Sprintf("answer %d", c.served.Add(1))
		if strings.Contains(string(h.Body), `"stream":true`) {
			return providertest.SSE(
				`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"t1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`,
				`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"t1","choices":[{"index":0,"delta":{"content":"`+content+`"},"finish_reason":null}]}`,
				`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"t1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
				`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"t1","choices":[],"usage":{"prompt_tokens":0,"completion_tokens":900,"total_tokens":900}}`,
				"data: [DONE]")
		}
		return providertest.JSON(200, `{"id":"c1","object":"chat.completion","created":1,"model":"t1","choices":[{"index":0,"message":{"role":"assistant","content":"`+content+
			`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":900,"total_tokens":900}}`)
	})
	c.replica = startReplica(t, c.stores, c.provider, t1+tenants+"\ncache: "+rule+"\n"+rest)
	return c
}

// question is a chat body that is cached apart from those with another text.
func question(text, members string) string {
	return fmt.Sprintf(`{"model":"t1","max_tokens":900,"messages":[{"role":"user","content":%q}]%s}`, text, members)
}

// entries is how many answers are stored.
func (c *cached) entries() int {
	return len(c.stores.Redis.Client().Keys(c.t.Context(), "tg:c:*").Val())
}

// ask asks with a key and headers, and waits until an answer that should be stored is. A slot is free again when the
// settlement has left, a moment after the answer.
func (c *cached) ask(key, body string, header http.Header, stored bool) answered {
	c.t.Helper()
	waitFor(c.t, "the slot of k1", func() bool {
		return c.stores.Redis.Client().ZCard(c.t.Context(), "tg:{t:red}:l:key:k1").Val() == 0
	})
	before := c.entries()
	req := c.newRequest(c.t.Context(), "POST", "/v1/chat/completions", key, strings.NewReader(body))
	for name, values := range header {
		req.Header[name] = values
	}
	got := c.do(req)
	if got.Status != 200 {
		c.t.Fatalf("%s: %d %s", body, got.Status, got.Body)
	}
	if stored {
		waitFor(c.t, "the answer to be stored", func() bool { return c.entries() > before })
	}
	return got
}

// miss and hit say where an answer came from, and want the headers to say so.
func (c *cached) miss(t *testing.T, what string, got answered) answered {
	t.Helper()
	if h := got.Header; h.Get("x-tollgate-cache") != "miss" || h.Get("age") != "" || h.Get("cache-control") != "private, no-store" {
		t.Errorf("%s: headers %v, want a miss", what, h)
	}
	return got
}

func (c *cached) hit(t *testing.T, what string, got answered) answered {
	t.Helper()
	h := got.Header
	if h.Get("x-tollgate-cache") != "hit" || h.Get("cache-control") != "private, no-store" || h.Get("x-tollgate-request-id") == "" {
		t.Errorf("%s: headers %v, want a hit", what, h)
	}
	if age, err := strconv.Atoi(h.Get("age")); err != nil || age < 0 || age > 60 {
		t.Errorf("%s: age %q", what, h.Get("age"))
	}
	return got
}

// TestE54CacheAccounting charges a prompt that is asked six times once.
func TestE54CacheAccounting(t *testing.T) {
	t.Parallel()
	c := startCached(t, "{ttl: 60s}", "")
	body := question("same", "")
	first := c.miss(t, "first", c.ask("sk-test-1", body, nil, true))
	for i := range 5 {
		again := c.hit(t, "again", c.ask("sk-test-1", body, nil, false))
		if again.Body != first.Body || again.Header.Get("content-type") != "application/json" {
			t.Errorf("hit %d: %v\n%s, want\n%s", i, again.Header, again.Body, first.Body)
		}
		if left := again.Header.Get("x-ratelimit-remaining-requests"); left != strconv.Itoa(998-i) {
			t.Errorf("hit %d left %s requests", i, left)
		}
	}
	hits, cost := 0, int64(0)
	for _, rec := range c.stores.settled(6) {
		cost += rec.CostNano
		if rec.Outcome == ledger.CacheHit {
			hits++
			if rec.CostNano != 0 || rec.Output != 0 || rec.Input != 0 {
				t.Errorf("a hit is billed: %+v", rec)
			}
		}
	}
	if hits != 5 || cost != 9_000_000 || c.served.Load() != 1 {
		t.Errorf("%d hits, cost %d nano-dollars, %d provider calls, want 5, 9,000,000 and 1", hits, cost, c.served.Load())
	}
	if v := c.stores.field("tg:{t:red}:b:key:k1", "uday.s"); v != "9000000" {
		t.Errorf("spent %s", v)
	}
	c.stores.checkNothingHeld("tg:{t:red}", "k1")
	// The tokens in the window are those of the one real answer.
	next := c.miss(t, "another prompt", c.ask("sk-test-1", question("other", ""), nil, true))
	left, err := strconv.Atoi(next.Header.Get("x-ratelimit-remaining-tokens"))
	if used := 1_000_000 - left; err != nil || used < 1800 || used > 1900 {
		t.Errorf("%d tokens of the window are used, want 900 and this call's reservation", 1_000_000-left)
	}
}

// TestE52CacheStreamShape serves one entry to streaming and non-streaming callers, in the shape that each asked for.
func TestE52CacheStreamShape(t *testing.T) {
	t.Parallel()
	c := startCached(t, "{ttl: 60s}", "")
	const plain, stream = "", `,"stream":true`
	const counted = `,"stream":true,"stream_options":{"include_usage":true}`
	for i, first := range []string{plain, stream, counted} {
		text := fmt.Sprintf("shape %d", i)
		want := fmt.Sprintf("answer %d", i+1)
		c.miss(t, text, c.ask("sk-test-1", question(text, first), nil, true))
		for _, members := range []string{plain, stream, counted} {
			got := c.hit(t, text+members, c.ask("sk-test-1", question(text, members), nil, false))
			if !strings.Contains(got.Body, want) || got.Header.Get("content-length") != strconv.Itoa(len(got.Body)) {
				t.Errorf("first %q, then %q: %v\n%s, want %q", first, members, got.Header, got.Body, want)
			}
			checkShape(t, got, members != plain, members == counted)
		}
	}
	if n := c.served.Load(); n != 3 {
		t.Errorf("the provider answered %d times, want 3", n)
	}
	c.checkLargeHit(t)
}

// checkLargeHit repeats an answer of 300 KiB, with a tool call in it, to a client that would take it compressed.
func (c *cached) checkLargeHit(t *testing.T) {
	t.Helper()
	text, arguments := strings.Repeat("words ", 50<<10), `{\"city\":\"Zürich\"}`
	c.provider.Queue(providertest.JSON(200, `{"id":"c1","object":"chat.completion","created":1,"model":"t1","choices":[{"index":0,"message":{"role":"assistant","content":"`+text+
		`","reasoning_content":"because","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"`+arguments+
		`"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":0,"completion_tokens":900,"total_tokens":900}}`))
	gzip := http.Header{"Accept-Encoding": {"gzip, br"}}
	first := c.miss(t, "large", c.ask("sk-test-1", question("large", ""), gzip, true))
	if again := c.hit(t, "large again", c.ask("sk-test-1", question("large", ""), gzip, false)); again.Body != first.Body || again.Header.Get("content-encoding") != "" {
		t.Errorf("%d bytes of %d, %v", len(again.Body), len(first.Body), again.Header)
	}
	stream := c.hit(t, "large stream", c.ask("sk-test-1", question("large", `,"stream":true`), gzip, false))
	checkShape(t, stream, true, false)
	for _, want := range []string{text, arguments, `"because"`, `"call_1"`, `"weather"`, `"tool_calls"`} {
		if !strings.Contains(stream.Body, want) {
			t.Errorf("the stream lacks %.60q", want)
		}
	}
}

// checkShape wants JSON, or events that end in one [DONE] with the usage chunk only when it was asked for.
func checkShape(t *testing.T, got answered, stream, usage bool) {
	t.Helper()
	if !stream {
		if got.Header.Get("content-type") != "application/json" || !strings.HasPrefix(got.Body, `{"id":"c1"`) || !strings.Contains(got.Body, `"completion_tokens":900`) {
			t.Errorf("a plain caller got %v\n%s", got.Header, got.Body)
		}
		return
	}
	if got.Header.Get("content-type") != "text/event-stream" || strings.Count(got.Body, "[DONE]") != 1 || !strings.HasSuffix(got.Body, "data: [DONE]\n\n") {
		t.Errorf("a streaming caller got %v\n%s", got.Header, got.Body)
	}
	if has := strings.Contains(got.Body, `"choices":[]`); has != usage {
		t.Errorf("usage chunk: %t, want %t\n%s", has, usage, got.Body)
	}
}

// TestCacheControls obeys the request's own controls, in its header and in LiteLLM's body field.
func TestCacheControls(t *testing.T) {
	t.Parallel()
	c := startCached(t, "{ttl: 60s}", "")
	header := func(v string) http.Header { return http.Header{"Cache-Control": {v}} }
	body := question("controls", "")
	c.miss(t, "no-store", c.ask("sk-test-1", body, header("no-store"), false))
	c.miss(t, "body no-store", c.ask("sk-test-1", question("controls", `,"cache":{"no-store":true}`), nil, false))
	c.miss(t, "body ttl 0", c.ask("sk-test-1", question("controls", `,"cache":{"ttl":0}`), nil, false))
	c.stores.settled(3)
	if n := c.entries(); n != 0 {
		t.Fatalf("%d answers were stored against no-store", n)
	}
	c.miss(t, "first", c.ask("sk-test-1", body, nil, true))
	c.hit(t, "second", c.ask("sk-test-1", body, nil, false))
	c.hit(t, "no-store still takes", c.ask("sk-test-1", body, header("no-store"), false))
	c.hit(t, "max-age", c.ask("sk-test-1", body, header("max-age=60"), false))
	c.hit(t, "body s-maxage", c.ask("sk-test-1", question("controls", `,"cache":{"s-maxage":60}`), nil, false))
	c.miss(t, "max-age 0", c.ask("sk-test-1", body, header("max-age=0"), false))
	c.miss(t, "body no-cache", c.ask("sk-test-1", question("controls", `,"cache":{"no-cache":true}`), nil, false))
	fresh := c.miss(t, "no-cache", c.ask("sk-test-1", body, header("no-cache"), false))
	// The fresh answer replaced the stored one.
	waitFor(t, "the fresh answer to be stored", func() bool {
		return c.ask("sk-test-1", body, nil, false).Body == fresh.Body
	})
	for _, h := range c.provider.Hits() {
		if strings.Contains(string(h.Body), `"cache"`) {
			t.Errorf("the provider got the gateway's own field: %s", h.Body)
		}
	}
	// A lifetime of the request's own is in force: Redis itself forgets.
	c.ask("sk-test-1", question("short", `,"cache":{"ttl":1}`), nil, true)
	waitFor(t, "the short lived answer to go", func() bool { return c.entries() == 1 })
	c.miss(t, "after its lifetime", c.ask("sk-test-1", question("short", ""), nil, true))
}

// TestE51CacheTenants never serves one tenant's answer to another, and none to who may not ask.
func TestE51CacheTenants(t *testing.T) {
	t.Parallel()
	c := startCached(t, "{ttl: 60s, scope: team}", "")
	body := question("tenants", "")
	red := c.miss(t, "k1", c.ask("sk-test-1", body, nil, true))
	blue := c.miss(t, "k2, of another team", c.ask("sk-test-2", body, nil, true))
	if got := c.hit(t, "k3, of the same team", c.ask("sk-test-3", body, nil, false)); got.Body != red.Body {
		t.Errorf("k3 got %s", got.Body)
	}
	if got := c.hit(t, "k1 again", c.ask("sk-test-1", body, nil, false)); got.Body != red.Body {
		t.Errorf("k1 got %s", got.Body)
	}
	if got := c.hit(t, "k2 again", c.ask("sk-test-2", body, nil, false)); got.Body != blue.Body {
		t.Errorf("k2 got %s", got.Body)
	}
	c.miss(t, "k4, which shares with nobody", c.ask("sk-test-4", body, nil, true))
	c.hit(t, "k4 again", c.ask("sk-test-4", body, nil, false))
	c.miss(t, "k5, which has no team", c.ask("sk-test-5", body, nil, true))
	c.hit(t, "k5 again", c.ask("sk-test-5", body, nil, false))
	checkRefusal(t, c.chat("sk-test-6", body), refusalWanted{status: 403, kind: "invalid_request_error", code: "model_not_allowed", final: true})
	checkRefusal(t, c.chat("sk-test-7", body), refusalWanted{status: 401, kind: "invalid_request_error", code: "invalid_api_key", final: true})
	// What cannot change the answer is no part of the key; everything else is.
	c.hit(t, "another end user", c.ask("sk-test-1", question("tenants", `,"user":"u","metadata":{"a":"b"}`), nil, false))
	c.hit(t, "another order", c.ask("sk-test-1", `{"messages":[{"content":"tenants","role":"user"}],"max_tokens":900,"model":"t1"}`, nil, false))
	c.miss(t, "another temperature", c.ask("sk-test-1", question("tenants", `,"temperature":1`), nil, true))
	c.miss(t, "an unknown field", c.ask("sk-test-1", question("tenants", `,"x_vendor":1`), nil, true))
	if served := c.served.Load(); served != 6 {
		t.Errorf("the provider answered %d times, want 6", served)
	}
}

// TestCacheKeepsOnlyGoodAnswers stores nothing that failed, was cut, is too large or must not be repeated, and takes nothing
// that was tampered with.
func TestCacheKeepsOnlyGoodAnswers(t *testing.T) {
	t.Parallel()
	c := startCached(t, "{ttl: 60s, max_entry: 4KiB}", "")
	good := `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":1}}`
	half := providertest.JSON(200, good)
	half.Break, half.Body = providertest.CloseAfterBody, []byte(good[:len(good)-30])
	half.Header.Set("content-length", strconv.Itoa(len(good)))
	cut := providertest.SSE("data: " + helloChunk)
	cut.Break = providertest.ResetAfterBody
	calls := 0
	for _, tt := range []struct {
		name, members string
		reply         providertest.Reply
	}{
		{"an error", "", providertest.JSON(500, `{"error":{"message":"x"}}`)},
		{"an error under 200", "", providertest.JSON(200, `{"error":{"message":"x"}}`)},
		{"no JSON", "", providertest.JSON(200, `<html>`)},
		{"no answer in it", "", providertest.JSON(200, `{"choices":[]}`)},
		{"no end", "", providertest.JSON(200, strings.Replace(good, `"stop"`, "null", 1))},
		{"cut JSON", "", half},
		{"a cut stream", `,"stream":true`, cut},
		{"a stream without end", `,"stream":true`, providertest.SSE("data: " + helloChunk)},
		{"an error in a stream", `,"stream":true`, providertest.SSE("data: "+helloChunk, `data: {"error":{"message":"x"}}`, "data: [DONE]")},
		{"JSON for a stream", `,"stream":true`, providertest.JSON(200, good)},
		{"too large", "", providertest.JSON(200, strings.Replace(good, "ok", strings.Repeat("x", 5<<10), 1))},
		{"a tool of the provider", `,"web_search_options":{}`, providertest.JSON(200, good)},
		{"kept by the provider", `,"store":true`, providertest.JSON(200, good)},
	} {
		c.provider.Queue(tt.reply)
		req := c.newRequest(t.Context(), "POST", "/v1/chat/completions", "sk-test-1", strings.NewReader(question(tt.name, tt.members)))
		_, _ = statusOf(client(t), req) // broken on purpose, some of them
		calls++
		c.stores.settled(calls)
		if n := c.entries(); n != 0 {
			t.Fatalf("%s was stored", tt.name)
		}
	}
	c.checkPoisoned(t)
}

// checkPoisoned damages an entry in several ways: each time it is a miss, and the fresh answer takes its place.
func (c *cached) checkPoisoned(t *testing.T) {
	t.Helper()
	ctx, redis := t.Context(), c.stores.Redis.Client()
	body := question("poisoned", "")
	c.ask("sk-test-1", body, nil, true)
	name := redis.Keys(ctx, "tg:c:*").Val()[0]
	whole, err := redis.Get(ctx, name).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if ttl := redis.PTTL(ctx, name).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("the entry lives for %v", ttl)
	}
	c.hit(t, "untouched", c.ask("sk-test-1", body, nil, false))
	flipped := append([]byte(nil), whole...)
	flipped[len(flipped)-10] ^= 1
	for what, poison := range map[string]string{
		"nonsense": "nonsense", "empty": "", "truncated": string(whole[:len(whole)/2]), "a bit flipped": string(flipped),
		"json of its own": `{"status":200,"body":"evil"}`,
	} {
		if err := redis.Set(ctx, name, poison, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		fresh := c.miss(t, what, c.ask("sk-test-1", body, nil, false))
		waitFor(t, "the fresh answer to be stored", func() bool { return redis.Get(ctx, name).Val() != poison })
		if got := c.hit(t, "after "+what, c.ask("sk-test-1", body, nil, false)); got.Body != fresh.Body {
			t.Errorf("after %s: %s", what, got.Body)
		}
	}
	// An entry moved to another request's place is no entry there, and one of the wrong type is none either.
	c.ask("sk-test-1", question("elsewhere", ""), nil, true)
	for _, other := range redis.Keys(ctx, "tg:c:*").Val() {
		if other != name {
			redis.Set(ctx, other, whole, time.Minute)
		}
	}
	c.miss(t, "moved", c.ask("sk-test-1", question("elsewhere", ""), nil, false))
	redis.Del(ctx, name)
	redis.LPush(ctx, name, "a list")
	c.miss(t, "a list", c.ask("sk-test-1", body, nil, false))
}
