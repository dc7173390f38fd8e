package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// startWith starts a replica with settings of its own for Redis.
func startWith(t *testing.T, s *stores, p *providertest.Provider, text, redis string) *replica {
	t.Helper()
	return startReplica(t, nil, p, text+"\nredis: {url: '"+s.url()+"', "+redis+"}\n")
}

// storeDown wants the refusal of a request that Redis gave no verdict on: never 401, never 429.
func storeDown(t *testing.T, got answered) {
	t.Helper()
	checkRefusal(t, got, refusalWanted{status: 503, kind: "server_error", wait: true})
	if after := got.Header.Get("retry-after"); after != "1" {
		t.Errorf("retry-after = %q, want 1", after)
	}
}

// recovers waits until a request is served again.
func (r *replica) recovers(secret, body string) {
	r.t.Helper()
	waitFor(r.t, "requests to be served again", func() bool { return r.chat(secret, body).Status == 200 })
}

// underWay starts n requests and returns when all have reached the provider, which holds them until release.
func underWay(t *testing.T, r *replica, p *providertest.Provider, secret string, n int) (answers <-chan sent, release func()) {
	t.Helper()
	release = hold(t, p, providertest.Usage{Prompt: 10})
	answers = barrier(t, []string{r.Envoy.URL("")}, secret, ask(1000), n)
	waitFor(t, "the requests to reach the provider", func() bool { return p.InFlight() == n })
	return answers, release
}

// TestRedisKilledWhileRequestsRun kills Redis in the middle of five requests and starts it again after they have ended.
func TestRedisKilledWhileRequestsRun(t *testing.T) {
	t.Parallel()
	server, p := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always"), providertest.New(t)
	s := &stores{t: t, Redis: server, Proxy: redistest.NewProxy(t, server.Addr())}
	r := startWith(t, s, p, t1+`keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 1, per: lifetime}], rpm: 100, parallel: 20}}]`,
		"deadline: 500ms, on_failure: {budgets: deny, rates: deny}")
	answers, release := underWay(t, r, p, "sk-test-a", 5)
	s.wantBudget(scopeKey("b", "key", "k"), "ulifetime", 0, 5*cent)
	server.Kill()
	for range 10 {
		storeDown(t, r.chat("sk-test-a", ask(1000)))
	}
	if n := len(p.Hits()); n != 5 {
		t.Errorf("%d hits, want 5: what was refused reached the provider", n)
	}
	release()
	for range 5 {
		if a := <-answers; a.err != nil || a.Status != 200 {
			t.Errorf("running request = %+v", a)
		}
	}
	server.Restart()
	s.recordsOf("k", 5)
	s.wantBudget(scopeKey("b", "key", "k"), "ulifetime", 5*cent, 0)
	if n := s.leases(scopeKey("l", "key", "k")); n != 0 {
		t.Errorf("%d slots are not free", n)
	}
	r.recovers("sk-test-a", ask(1000))
	records := s.recordsOf("k", 6)
	sum := int64(0)
	for _, record := range records {
		sum += record.CostNano
		if record.Outcome != ledger.Complete {
			t.Errorf("record = %+v", record)
		}
	}
	s.wantBudget(scopeKey("b", "key", "k"), "ulifetime", sum, 0)
	if n := r.metric("tollgate_deferred_writes_lost_total") + r.metric("tollgate_leases_held"); sum != 6*cent || n != 0 {
		t.Errorf("the records say %d, want %d; %v writes lost or leases held", sum, 6*cent, n)
	}
}

// TestRedisStopped wants a request to wait for a Redis that hangs no longer than the deadline, and those after it not at
// all.
func TestRedisStopped(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	const deadline = time.Second
	r := startWith(t, s, p, t1+`keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 1, per: lifetime}]}}]`, "deadline: 1s")
	passes(t, r.chat("sk-test-a", ask(10)))
	s.settled(1)
	s.Redis.Pause()
	took := func() time.Duration {
		begun := time.Now()
		storeDown(t, r.chat("sk-test-a", ask(10)))
		return time.Since(begun)
	}
	for range 3 {
		if d := took(); d > deadline+2*time.Second {
			t.Errorf("waited %s, the deadline is %s", d, deadline)
		}
	}
	// One request in 250 ms is sent to see whether Redis is back; all others do not wait.
	quick := 0
	for range 10 {
		if took() < deadline/2 {
			quick++
		}
	}
	if quick < 6 {
		t.Errorf("%d of 10 requests did not wait for a Redis that is known to hang", quick)
	}
	s.Redis.Resume()
	r.recovers("sk-test-a", ask(10))
	if n := r.metric("tollgate_redis_up"); n != 1 {
		t.Errorf("tollgate_redis_up = %v", n)
	}
}

// outageKeys are keys of each kind of limit, seen and unseen before an outage.
const outageKeys = t1 + `
keys:
  - {id: budget, secret: sk-budget, limits: {budgets: [{usd: 0.10, per: lifetime}]}}
  - {id: rate, secret: sk-rate, limits: {rpm: 5}}
  - {id: slots, secret: sk-slots, limits: {parallel: 3}}
  - {id: unseen, secret: sk-unseen, limits: {budgets: [{usd: 0.10, per: lifetime}], rpm: 5}}
  - {id: free, secret: sk-free}
`

// beginOutage makes each limit known to the replica by a request, beside those settled before, and cuts Redis off.
func beginOutage(t *testing.T, s *stores, r *replica, before int) {
	t.Helper()
	for _, secret := range []string{"sk-budget", "sk-rate", "sk-slots"} {
		passes(t, r.chat(secret, ask(1000)))
	}
	s.settled(before + 3)
	s.Proxy.Refuse(true)
	t.Cleanup(func() { s.Proxy.Refuse(false) })
}

func TestOnFailureDeny(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startWith(t, s, p, outageKeys, "deadline: 500ms, on_failure: {budgets: deny, rates: deny}")
	beginOutage(t, s, r, 0)
	p.Reset()
	for _, secret := range []string{"sk-budget", "sk-rate", "sk-slots", "sk-unseen"} {
		storeDown(t, r.chat(secret, ask(1000)))
	}
	if n := len(p.Hits()); n != 0 {
		t.Errorf("%d hits", n)
	}
	passes(t, r.chat("sk-free", ask(1000))) // nothing of it is counted
}

func TestOnFailureAllow(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startWith(t, s, p, outageKeys, "deadline: 500ms, on_failure: {budgets: allow, rates: allow}")
	beginOutage(t, s, r, 0)
	for range 12 {
		passes(t, r.chat("sk-budget", ask(1000)))
		passes(t, r.chat("sk-rate", ask(10)))
	}
	passes(t, r.chat("sk-unseen", ask(1000)))
	s.Proxy.Refuse(false)
	s.recordsOf("budget", 13)
	s.recordsOf("rate", 13)
	s.recordsOf("unseen", 1)
	s.wantBudget(scopeKey("b", "key", "budget"), "ulifetime", 13*cent, 0) // what went on is charged
	waitFor(t, "the budget to refuse", func() bool {
		return r.chat("sk-budget", ask(1000)).Header.Get("x-tollgate-refused") == "key/budget budget lifetime"
	})
}

// TestOnFailureLocal wants what the last grant left, no more, and nothing of a scope that was never seen.
func TestOnFailureLocal(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startWith(t, s, p, outageKeys, "deadline: 500ms, on_failure: {budgets: local, rates: local}")
	if left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)); left < 10*time.Second {
		time.Sleep(left) // local rates are by the minute of the clock
	}
	answers, release := underWay(t, r, p, "sk-slots", 2)
	release()
	for range 2 {
		<-answers
	}
	beginOutage(t, s, r, 2)
	count := func(secret string, n int) (served int) {
		t.Helper()
		for range n {
			got := r.chat(secret, ask(1000))
			if got.Status == 200 {
				served++
				continue
			}
			storeDown(t, got)
		}
		return served
	}
	if n := count("sk-budget", 12); n != 9 {
		t.Errorf("%d requests of $0.01 pass with $0.09 left", n)
	}
	if n := count("sk-rate", 8); n != 4 {
		t.Errorf("%d requests pass with 4 of 5 left", n)
	}
	if n := count("sk-unseen", 2); n != 0 {
		t.Errorf("%d requests of an unseen key pass", n)
	}
	p.Reset()
	release = hold(t, p, providertest.Usage{Prompt: 10})
	answers = barrier(t, []string{r.Envoy.URL("")}, "sk-slots", ask(10), 6)
	for range 3 {
		storeDown(t, (<-answers).answered)
	}
	release()
	for range 3 {
		if a := <-answers; a.Status != 200 {
			t.Errorf("one of three slots: %+v", a)
		}
	}
	s.Proxy.Refuse(false)
	s.recordsOf("budget", 10)
	s.wantBudget(scopeKey("b", "key", "budget"), "ulifetime", 10*cent, 0)
	waitFor(t, "the budget to refuse", func() bool {
		return r.chat("sk-budget", ask(1000)).Header.Get("x-tollgate-refused") == "key/budget budget lifetime"
	})
}

// TestOnFailureLocalCountsRunningRequests wants the slots of requests that run when Redis goes away to count.
func TestOnFailureLocalCountsRunningRequests(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startWith(t, s, p, outageKeys, "deadline: 500ms, on_failure: {rates: local}")
	answers, release := underWay(t, r, p, "sk-slots", 2)
	s.Proxy.Refuse(true)
	more := barrier(t, []string{r.Envoy.URL("")}, "sk-slots", ask(10), 4)
	for range 3 { // one of three slots is left
		storeDown(t, (<-more).answered)
	}
	release()
	for _, a := range []sent{<-answers, <-answers, <-more} {
		if a.err != nil || a.Status != 200 {
			t.Errorf("answer = %+v", a)
		}
	}
	s.Proxy.Refuse(false)
	s.recordsOf("slots", 3)
	if n := s.leases(scopeKey("l", "key", "slots")); n != 0 {
		t.Errorf("%d slots are not free", n)
	}
}

// TestUpstreamDiesInMidStream wants the client to see a broken answer, not a whole one, and the key to go on.
func TestUpstreamDiesInMidStream(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, t1+`keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 0.02, per: lifetime}], parallel: 1}}]`)
	b := strings.TrimSuffix(ask(1000), "}") + streamed + "}"
	spent := int64(0)
	for i, how := range []providertest.Break{providertest.ResetAfterBody, providertest.CloseAfterBody} {
		p.Queue(broken(providertest.SSE(event(""), event(""), ": still there").Paced(50*time.Millisecond), how))
		a := send(t.Context(), client(t), r.Envoy.URL(""), "sk-test-a", b)
		if a.err == nil || strings.Contains(a.Body, "[DONE]") {
			t.Errorf("%s: the client got a whole answer: %+v", how, a)
		}
		for _, record := range s.recordsOf("k", i+1) {
			if record.Outcome == ledger.Complete {
				t.Errorf("%s: record = %+v", how, record)
			}
		}
	}
	for _, record := range s.recordsOf("k", 2) {
		spent += record.CostNano
	}
	if want := 2 * 20 * int64(10_000); spent != want {
		t.Errorf("the records say %d, want %d", spent, want)
	}
	s.wantBudget(scopeKey("b", "key", "k"), "ulifetime", spent, 0)
	passes(t, r.chat("sk-test-a", ask(1000)))
}

// TestFlushedWhileRequestsRun loses all of Redis' data under two running requests: what settles afterwards makes no
// counter and takes none below zero, and what is admitted afterwards is counted exactly.
func TestFlushedWhileRequestsRun(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, t1+`keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 1, per: lifetime}, {requests: 100, per: month}], rpm: 100, tpm: 100000, parallel: 10}}]`)
	budget := scopeKey("b", "key", "k")
	flush := func() {
		t.Helper()
		if err := s.Redis.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	answers, release := underWay(t, r, p, "sk-test-a", 2)
	flush()
	release()
	for range 2 {
		if a := <-answers; a.err != nil || a.Status != 200 {
			t.Errorf("answer = %+v", a)
		}
	}
	s.recordsOf("k", 2)
	if n := s.Redis.Client().Exists(t.Context(), budget, scopeKey("r", "key", "k"), scopeKey("l", "key", "k")).Val(); n != 0 {
		t.Errorf("the settlement made %d counters", n)
	}

	answers, release = underWay(t, r, p, "sk-test-a", 2)
	flush()
	p.Script(providertest.Chat(providertest.Usage{Prompt: 10}))
	passes(t, r.chat("sk-test-a", ask(1000)))
	s.recordsOf("k", 1)
	release()
	for range 2 {
		<-answers
	}
	s.recordsOf("k", 3)
	s.wantBudget(budget, "ulifetime", cent, 0)
	s.wantBudget(budget, "rmonth", 1, 0)
	if n := s.leases(scopeKey("l", "key", "k")); n != 0 {
		t.Errorf("%d slots are not free", n)
	}
}

// TestScriptsFlushedBetweenRequests makes Redis forget its scripts before each request and before each settlement.
func TestScriptsFlushedBetweenRequests(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, t1+`
keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 0.20, per: lifetime}], rpm: 100, parallel: 2}}]
debug: {trips_header: true}
`)
	forget := func() {
		if err := s.Redis.Client().ScriptFlush(context.Background()).Err(); err != nil {
			t.Error(err)
		}
	}
	answer := providertest.Chat(providertest.Usage{Prompt: 10})
	p.Script(func(h providertest.Hit) providertest.Reply {
		forget()
		return answer(h)
	})
	for i := range 20 {
		forget()
		got := r.chat("sk-test-a", ask(1000))
		passes(t, got)
		if trips := got.Header.Get("x-tollgate-trips"); trips != "2" { // the second one brings the script along
			t.Errorf("%s trips, want 2", trips)
		}
		s.settled(i + 1)
		s.wantBudget(scopeKey("b", "key", "k"), "ulifetime", int64(i+1)*cent, 0)
	}
	forget()
	refusedAs(t, r.chat("sk-test-a", ask(1000)), "key/k budget lifetime")
}

// TestE69CorruptKeys replaces the keys of one admission by strings, one at a time. A missing key stands beside each: the
// cached answer. Each broken limit follows its own failure policy, and an exhausted budget is denied whatever else is
// broken.
func TestE69CorruptKeys(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	const text = t1 + `
cache: {ttl: 60s, scope: key}
teams: [{id: team, limits: {budgets: [{usd: 0.50, per: lifetime}], rpm: 1000, tpm: 10000000, parallel: 10}}]
keys: [{id: k, secret: sk-test-a, team: team, limits: {budgets: [{usd: 1000, per: lifetime}], rpm: 1000, tpm: 10000000, parallel: 10}}]
`
	start := func(budgets, rates string) *replica {
		return startWith(t, s, p, text, fmt.Sprintf("deadline: 1s, on_failure: {budgets: %s, rates: %s}", budgets, rates))
	}
	deny, allow, mixed, local := start("deny", "deny"), start("allow", "allow"), start("deny", "allow"), start("deny", "local")
	c := s.Redis.Client()
	broken := func(key string) {
		t.Helper()
		c.Del(t.Context(), key)
		if err := c.Set(t.Context(), key, "by hand", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	records := 0
	chat := func(r *replica, served bool) answered {
		t.Helper()
		before := len(p.Hits())
		// Each is another question, so that none is answered from the cache.
		got := r.chat("sk-test-a", strings.Replace(body("t1", ""), `"max_tokens":100`, `"max_tokens":1000`, 1))
		if (got.Status == 200) != served || (len(p.Hits()) != before) != served {
			t.Errorf("answer %d, %d hits; served should be %t: %s", got.Status, len(p.Hits())-before, served, got.Body)
		}
		if served {
			records++
			s.settled(records)
		}
		return got
	}
	chat(deny, true)
	chat(local, true) // what it leaves is what the local limits are made from
	for _, scope := range []string{"key:k", "team:team"} {
		for _, what := range []string{"b", "r", "l"} {
			key := "tg:{t:team}:" + what + ":" + scope
			t.Run(what+":"+scope, func(t *testing.T) {
				broken(key)
				storeDown(t, chat(deny, false))
				chat(allow, true)
				// The leases hold the budget's reservations: with them broken no budget can be kept.
				chat(mixed, what == "r")
				chat(local, what == "r")
				if v := c.Get(t.Context(), key).Val(); v != "by hand" {
					t.Errorf("%s = %q: somebody wrote over it", key, v)
				}
				c.Del(t.Context(), key)
				chat(deny, true)
				for _, id := range []string{"key:k", "team:team"} {
					if _, reserved := s.budget("tg:{t:team}:b:"+id, "ulifetime"); reserved != 0 {
						t.Errorf("%s keeps %d nano-dollars reserved", id, reserved)
					}
				}
			})
		}
	}
	t.Run("an exhausted budget is denied whatever is broken", func(t *testing.T) {
		for spent, _ := s.budget("tg:{t:team}:b:team:team", "ulifetime"); spent < 50*cent; spent += cent {
			chat(deny, true)
		}
		for _, key := range []string{"b:key:k", "r:key:k", "l:key:k", "r:team:team"} {
			key = "tg:{t:team}:" + key
			broken(key)
			for _, r := range []*replica{deny, allow, mixed, local} {
				refusedAs(t, chat(r, false), "team/team budget lifetime")
			}
			c.Del(t.Context(), key)
		}
		refusedAs(t, chat(deny, false), "team/team budget lifetime")
	})
}
