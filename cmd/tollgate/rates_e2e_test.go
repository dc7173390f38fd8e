package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
)

// prompt is a chat body for t1 whose input estimate is exactly n tokens.
func prompt(t *testing.T, n int64, maxTokens int) string {
	t.Helper()
	for size := range 2000 {
		b := fmt.Sprintf(`{"model":"t1","max_tokens":%d,"messages":[{"role":"user","content":%q}]}`, maxTokens, strings.Repeat("a", size))
		if estimate(t, b) == n {
			return b
		}
	}
	t.Fatalf("no prompt of %d tokens", n)
	return ""
}

// tally collects answers that come at the same time; it wants each refusal to be a 429 by the limit with a wait of 1 to
// 65 seconds, and calls denied after each.
func tally(t *testing.T, answers <-chan sent, n int, refused string, denied func(n int)) (served int) {
	t.Helper()
	no := 0
	for range n {
		a := <-answers
		if a.err == nil && a.Status == 200 {
			served++
			continue
		}
		if a.err != nil {
			t.Errorf("no answer: %v", a.err)
			continue
		}
		refusedAs(t, a.answered, refused)
		wantWait(t, a.answered)
		no++
		denied(no)
	}
	return served
}

// wantWait wants a retry-after of 1 to 65 seconds and returns it.
func wantWait(t *testing.T, got answered) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(got.Header.Get("retry-after"))
	if err != nil || n < 1 || n > 65 {
		t.Errorf("retry-after = %q, want 1 to 65", got.Header.Get("retry-after"))
	}
	return time.Duration(n) * time.Second
}

// TestE34LimitsAreSharedByReplicas races for slots, for requests and for tokens over two replicas.
func TestE34LimitsAreSharedByReplicas(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	const text = t1 + `
  - {name: t2, deployments: [{name: p2, url: "PROVIDER/v1", dialect: openai, price: {input: 0, output: 10}}]}
keys:
  - {id: parallel, secret: sk-parallel, limits: {parallel: 3}}
  - {id: rpm, secret: sk-rpm, limits: {rpm: 5}}
  - {id: tpm, secret: sk-tpm, limits: {tpm: 1000}}
`
	bases := []string{startReplica(t, s, p, text).Envoy.URL(""), startReplica(t, s, p, text).Envoy.URL("")}
	none := func(int) {}
	for round := range 3 {
		p.Reset()
		release := hold(t, p, providertest.Usage{Prompt: 10})
		answers := barrier(t, bases, "sk-parallel", ask(10), 12)
		late := time.AfterFunc(20*time.Second, release) // more than three were let in
		served := tally(t, answers, 12, "key/parallel parallel", func(n int) {
			if n == 9 {
				waitFor(t, "the three to reach the provider", func() bool { return p.InFlight() >= 3 })
				release()
			}
		})
		late.Stop()
		if served != 3 || p.Peak() != 3 || len(p.Hits()) != 3 {
			t.Errorf("round %d: %d served, %d at once at the provider, %d in all; want 3", round, served, p.Peak(), len(p.Hits()))
		}
		s.recordsOf("parallel", 3*(round+1))
		if n := s.leases(scopeKey("l", "key", "parallel")); n != 0 {
			t.Errorf("%d slots are not free", n)
		}
	}
	p.Script(providertest.Chat(providertest.Usage{Prompt: 10}))
	if served := tally(t, barrier(t, bases, "sk-rpm", ask(10), 12), 12, "key/rpm rpm", none); served != 5 {
		t.Errorf("%d of 12 pass 5 requests a minute", served)
	}
	s.recordsOf("rpm", 5)
	if requests, _ := s.window(scopeKey("r", "key", "rpm")); requests != 5 {
		t.Errorf("%d requests in the window, want 5", requests)
	}
	// 100 tokens each, reserved and used, so that ten fill the window whenever they settle. The model is one of which
	// nothing was learned: its estimates are as right as they were.
	p.Script(providertest.Chat(providertest.Usage{Prompt: 50, Completion: 50}))
	if served := tally(t, barrier(t, bases, "sk-tpm", strings.Replace(prompt(t, 50, 50), "t1", "t2", 1), 25), 25, "key/tpm tpm", none); served != 10 {
		t.Errorf("%d of 25 requests of 100 tokens pass 1,000 tokens a minute", served)
	}
	s.recordsOf("tpm", 10)
	if _, tokens := s.window(scopeKey("r", "key", "tpm")); tokens != 1000 {
		t.Errorf("%d tokens in the window, want 1000", tokens)
	}
}

// TestE36SteadyTraffic keeps a key at three quarters of its tokens for five minutes: it is never refused, and the window
// is forgotten on time.
func TestE36SteadyTraffic(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	p.Script(providertest.Chat(providertest.Usage{Prompt: 50}))
	r := startReplica(t, s, p, t1+`keys: [{id: k, secret: sk-test-a, limits: {tpm: 1000}}]`)
	b := prompt(t, 50, 50)
	begun := time.Now()
	for i := range 38 { // five minutes
		waitUntil(begun.Add(time.Duration(i) * 8 * time.Second))
		if got := r.chat("sk-test-a", b); got.Status != 200 {
			t.Fatalf("request %d after %s: %+v", i, time.Since(begun), got)
		}
	}
	windows := 0
	for _, key := range s.Redis.Client().Keys(t.Context(), "*").Val() {
		ttl := s.Redis.Client().PTTL(t.Context(), key).Val()
		switch {
		case strings.Contains(key, ":r:"):
			windows++
			if ttl <= 0 || ttl > 2*time.Minute {
				t.Errorf("ttl of %s = %v, want at most two windows", key, ttl)
			}
		case ttl <= 0 && !strings.HasPrefix(key, "tg:spend:"):
			t.Errorf("%s has no ttl", key)
		}
	}
	if windows != 1 {
		t.Errorf("%d rate windows, want 1", windows)
	}
	if buckets := len(strings.Fields(s.field(scopeKey("r", "key", "k"), "w"))); buckets > 13 {
		t.Errorf("the window keeps %d buckets", buckets)
	}
}

// TestE38Headers covers what a client is told of its limits, and that waiting as told is enough.
func TestE38Headers(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	p.Script(providertest.Chat(providertest.Usage{Prompt: 10}))
	r := startReplica(t, s, p, t1+`
keys:
  - {id: a, secret: sk-test-a, limits: {rpm: 3, tpm: 1000}}
  - {id: b, secret: sk-test-b, limits: {rpm: 3, tpm: 1000}}
`)
	left := func(got answered, unit string) int {
		t.Helper()
		limit := map[string]string{"requests": "3", "tokens": "1000"}[unit]
		if l := got.Header.Get("x-ratelimit-limit-" + unit); l != limit {
			t.Errorf("x-ratelimit-limit-%s = %q, want %s", unit, l, limit)
		}
		n, err := strconv.Atoi(got.Header.Get("x-ratelimit-remaining-" + unit))
		if err != nil || n < 0 {
			t.Errorf("x-ratelimit-remaining-%s = %q", unit, got.Header.Get("x-ratelimit-remaining-"+unit))
		}
		if wait, err := time.ParseDuration(got.Header.Get("x-ratelimit-reset-" + unit)); err != nil || wait <= 0 || wait > 65*time.Second {
			t.Errorf("x-ratelimit-reset-%s = %q", unit, got.Header.Get("x-ratelimit-reset-"+unit))
		}
		return n
	}
	small := prompt(t, 10, 10)
	for i := range 3 {
		got := r.chat("sk-test-a", small)
		passes(t, got)
		if n := left(got, "requests"); n != 2-i {
			t.Errorf("request %d: %d requests remain, want %d", i, n, 2-i)
		}
		if n := left(got, "tokens"); n != 1000-20*(i+1) { // the reservation is what was used
			t.Errorf("request %d: %d tokens remain, want %d", i, n, 1000-20*(i+1))
		}
		s.recordsOf("a", i+1)
	}
	full := r.chat("sk-test-a", small)
	refusedAs(t, full, "key/a rpm")
	if n := left(full, "requests"); n != 0 {
		t.Errorf("%d requests remain on the 429", n)
	}
	checkRefusal(t, full, refusalWanted{status: 429, kind: "requests", code: "rate_limit_exceeded", wait: true})
	waitA := time.Now().Add(wantWait(t, full))

	p.Queue(providertest.Chat(providertest.Usage{Prompt: 90})(providertest.Hit{Body: []byte(ask(10))}))
	passes(t, r.chat("sk-test-b", prompt(t, 90, 10)))
	s.recordsOf("b", 1)
	p.Queue(providertest.Chat(providertest.Usage{Prompt: 10, Completion: 1200})(providertest.Hit{Body: []byte(ask(500))}))
	passes(t, r.chat("sk-test-b", ask(500)))
	s.recordsOf("b", 2)
	over := r.chat("sk-test-b", small)
	refusedAs(t, over, "key/b tpm")
	if n := left(over, "tokens"); n != 0 {
		t.Errorf("%d tokens remain on the 429", n)
	}
	checkRefusal(t, over, refusalWanted{status: 429, kind: "tokens", code: "rate_limit_exceeded", wait: true})
	waitB := time.Now().Add(wantWait(t, over))

	var legs sync.WaitGroup
	for key, at := range map[string]time.Time{"sk-test-a": waitA, "sk-test-b": waitB} {
		legs.Go(func() {
			waitUntil(at)
			if a := send(t.Context(), client(t), r.Envoy.URL(""), key, small); a.err != nil || a.Status != 200 {
				t.Errorf("after waiting as told, %s got %+v", key, a)
			}
		})
	}
	legs.Wait()
}

// TestTPMRefusalThatNeverFits wants a request larger than the limit to be told not to come again, and one that names no
// cap to be clamped.
func TestTPMRefusalThatNeverFits(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, t1+`keys: [{id: k, secret: sk-test-a, limits: {tpm: 500}}]`)
	got := r.chat("sk-test-a", ask(1000))
	refusedAs(t, got, "key/k tpm")
	if got.Header.Get("x-should-retry") != "false" || got.Header.Get("retry-after") != "" {
		t.Errorf("headers = %v, want x-should-retry: false and no wait", got.Header)
	}
	passes(t, r.chat("sk-test-a", strings.Replace(prompt(t, 100, 1), `"max_tokens":1,`, "", 1)))
	hit := p.Wait(1, time.Second)[0]
	if !strings.Contains(string(hit.Body), "400") { // what the window holds beside 100 tokens of input
		t.Errorf("the provider got %s, want a cap of 400", hit.Body)
	}
}

// TestDeploymentLimits spreads requests over two deployments, each with a limit of its own, by both strategies.
func TestDeploymentLimits(t *testing.T) {
	t.Parallel()
	s, one, two := newStores(t), providertest.New(t), providertest.New(t)
	const price = `dialect: openai, price: {input: 0, output: 10}`
	text := strings.NewReplacer("ONE", one.URL(), "TWO", two.URL(), "PRICE", price).Replace(`
models:
  - name: usage
    strategy: usage
    deployments:
      - {name: u1, url: "ONE/v1", rpm: 4, PRICE}
      - {name: u2, url: "TWO/v1", rpm: 8, PRICE}
  - name: shuffle
    strategy: shuffle
    deployments:
      - {name: s1, url: "ONE/v1", weight: 1, PRICE}
      - {name: s2, url: "TWO/v1", weight: 3, PRICE}
  - name: both
    strategy: shuffle
    deployments:
      - {name: b1, url: "ONE/v1", weight: 9, rpm: 3, PRICE}
      - {name: b2, url: "TWO/v1", rpm: 3, PRICE}
keys: [{id: k, secret: sk-test-a, limits: {rpm: 100000}}]
`)
	a, b := startReplica(t, s, nil, text), startReplica(t, s, nil, text)
	bases := []string{a.Envoy.URL(""), b.Envoy.URL("")}
	named := func(model string) string { return strings.Replace(ask(10), "t1", model, 1) }
	race := func(model string, n int) (served, busy int) {
		one.Reset()
		two.Reset()
		answers := barrier(t, bases, "sk-test-a", named(model), n)
		for range n {
			switch got := <-answers; {
			case got.err == nil && got.Status == 200:
				served++
			case got.err == nil && got.Status == 429 && strings.Contains(got.Body, `"rate_limit_exceeded"`):
				busy++
				wantWait(t, got.answered)
			default:
				t.Errorf("answer = %+v", got)
			}
		}
		return served, busy
	}
	// Exactly what both hold together, and each no more than its own, whoever asks.
	if served, busy := race("usage", 20); served != 12 || busy != 8 || len(one.Hits()) != 4 || len(two.Hits()) != 8 {
		t.Errorf("usage: %d served, %d busy, %d and %d hits; want 12, 8, 4, 8", served, busy, len(one.Hits()), len(two.Hits()))
	}
	if served, busy := race("both", 10); served != 6 || busy != 4 || len(one.Hits()) != 3 || len(two.Hits()) != 3 {
		t.Errorf("both: %d served, %d busy, %d and %d hits; want 6, 4, 3, 3", served, busy, len(one.Hits()), len(two.Hits()))
	}
	// Three quarters go to the heavier one: of 400, 300 give or take five standard deviations.
	if served, _ := race("shuffle", 400); served != 400 || len(two.Hits()) < 257 || len(two.Hits()) > 343 {
		t.Errorf("shuffle: %d served, %d by the heavier; want 400, about 300", served, len(two.Hits()))
	}
	s.recordsOf("k", 418)
	for key, want := range map[string]int64{
		"tg:{m:usage}:r:deployment:u1": 4, "tg:{m:usage}:r:deployment:u2": 8, "tg:{m:both}:r:deployment:b1": 3,
	} {
		if requests, _ := s.window(key); requests != want {
			t.Errorf("%s counts %d requests, want %d", key, requests, want)
		}
	}
	// What refused counts nowhere: neither at the deployments nor at the key.
	if requests, _ := s.window(scopeKey("r", "key", "k")); requests != 418 {
		t.Errorf("the key counts %d requests, want 418", requests)
	}
}
