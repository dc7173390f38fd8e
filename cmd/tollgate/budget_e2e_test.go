package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
)

// cent is $0.01 in nano-dollars: what 1,000 output tokens of t1 cost.
const cent = int64(10_000_000)

// scopeKeys begins the Redis keys of a scope of its own tenant: "key:k0" stands for the key k0 without a team.
func scopeKey(what, kind, id string) string {
	return "tg:{" + kind[:1] + ":" + id + "}:" + what + ":" + kind + ":" + id
}

// budget is what a budget's counters hold; field is such as "ulifetime".
func (s *stores) budget(key, field string) (spent, reserved int64) {
	s.t.Helper()
	return s.number(key, field+".s"), s.number(key, field+".r")
}

// number is a field of a hash that holds a whole number; one that is not there is zero.
func (s *stores) number(key, field string) int64 {
	s.t.Helper()
	v := s.field(key, field)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		s.t.Fatalf("%s %s = %q", key, field, v)
	}
	return n
}

// window is the sum of the buckets of a rate hash.
func (s *stores) window(key string) (requests, tokens int64) {
	s.t.Helper()
	for bucket := range strings.FieldsSeq(s.field(key, "w")) {
		var at, n, k int64
		if _, err := fmt.Sscanf(bucket, "%d:%d:%d", &at, &n, &k); err != nil {
			s.t.Fatalf("%s = %q: %v", key, s.field(key, "w"), err)
		}
		requests += n
		tokens += k
	}
	return requests, tokens
}

// leases is how many leases a scope has, live or not.
func (s *stores) leases(key string) int64 {
	return s.client().ZCard(context.Background(), key).Val()
}

// wantBudget compares what a budget's counters hold.
func (s *stores) wantBudget(key, field string, spent, reserved int64) {
	s.t.Helper()
	if gotSpent, gotReserved := s.budget(key, field); gotSpent != spent || gotReserved != reserved {
		s.t.Errorf("%s %s: spent %d, reserved %d; want %d, %d", key, field, gotSpent, gotReserved, spent, reserved)
	}
}

// recordsOf are the spend records of one key, once there are n of them.
func (s *stores) recordsOf(key string, n int) []ledger.Record {
	s.t.Helper()
	var list []ledger.Record
	for range 1000 {
		list = list[:0]
		for _, r := range s.records() {
			if r.Key == key {
				list = append(list, r)
			}
		}
		if len(list) >= n {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(list) != n {
		s.t.Fatalf("key %s has %d spend records, want %d: %+v", key, len(list), n, list)
	}
	return list
}

// sent is what became of a request that was sent from any goroutine.
type sent struct {
	answered
	err error
}

// send posts a chat request and reads the answer.
func send(ctx context.Context, c *http.Client, base, key, body string) sent {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return sent{err: err}
	}
	req.Header.Set("authorization", "Bearer "+key)
	req.Header.Set("content-type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return sent{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return sent{answered{resp.StatusCode, resp.Header, string(text)}, err}
}

// barrier starts n requests at the same instant, spread over the gateways, and returns their answers as they come.
func barrier(t *testing.T, bases []string, key, body string, n int) <-chan sent {
	t.Helper()
	answers := make(chan sent, n)
	c := client(t)
	start := make(chan struct{})
	for i := range n {
		go func() {
			<-start
			answers <- send(context.Background(), c, bases[i%len(bases)], key, body)
		}()
	}
	close(start)
	return answers
}

// hold makes the provider keep its answers back until release is called, and then answer as Chat does.
func hold(t *testing.T, p *providertest.Provider, u providertest.Usage) (release func()) {
	t.Helper()
	open := make(chan struct{})
	answer := providertest.Chat(u)
	p.Script(func(h providertest.Hit) providertest.Reply {
		<-open
		return answer(h)
	})
	release = sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	return release
}

// rounds of E-01, and the keys that they take: one each, so that each begins at zero.
const rounds = 20

func roundKeys() string {
	var b strings.Builder
	b.WriteString("keys:\n")
	for i := range rounds {
		fmt.Fprintf(&b, "  - {id: k%d, secret: sk-test-%d, limits: {budgets: [{usd: 0.10, per: lifetime}]}}\n", i, i)
	}
	return b.String()
}

// raceForBudget lets 50 clients race for a budget that holds ten, round after round. No answer is given before all that
// are to be denied are, so every request overlaps with every other.
func raceForBudget(t *testing.T, s *stores, p *providertest.Provider, bases []string) {
	t.Helper()
	for round := range rounds {
		p.Reset()
		release := hold(t, p, providertest.Usage{Prompt: 10})
		answers := barrier(t, bases, fmt.Sprintf("sk-test-%d", round), ask(1000), 50)
		late := time.AfterFunc(20*time.Second, release) // more than ten were let in: say so instead of hanging
		served, denied := 0, 0
		for range 50 {
			a := <-answers
			switch {
			case a.Status == 200:
				served++
			case a.Status == 429 && strings.Contains(a.Body, `"insufficient_quota"`) && a.Header.Get("retry-after") == "":
				denied++
			default:
				t.Errorf("answer = %+v", a)
			}
			if denied == 40 {
				release()
			}
		}
		late.Stop()
		if hits := len(p.Hits()); served != 10 || denied != 40 || hits != 10 {
			t.Fatalf("round %d: %d served, %d denied, %d reached the provider; want 10, 40, 10", round, served, denied, hits)
		}
		key := fmt.Sprintf("k%d", round)
		sum := int64(0)
		for _, r := range s.recordsOf(key, 10) {
			sum += r.CostNano
		}
		if sum != 10*cent {
			t.Errorf("round %d: the records say %d nano-dollars, want %d", round, sum, 10*cent)
		}
		s.wantBudget(scopeKey("b", "key", key), "ulifetime", 10*cent, 0)
		if n := s.leases(scopeKey("l", "key", key)); n != 0 {
			t.Errorf("round %d: %d leases are left", round, n)
		}
	}
	if n := len(s.records()); n != 10*rounds {
		t.Errorf("%d records, want %d", n, 10*rounds)
	}
}

func TestE01OneReplica(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, t1+roundKeys())
	raceForBudget(t, s, p, []string{r.Envoy.URL("")})
}

func TestE01TwoReplicas(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	a, b := startReplica(t, s, p, t1+roundKeys()), startReplica(t, s, p, t1+roundKeys())
	raceForBudget(t, s, p, []string{a.Envoy.URL(""), b.Envoy.URL("")})
}

func TestE01TwoProcesses(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	a, b := startProcess(t, s, p, t1+roundKeys()), startProcess(t, s, p, t1+roundKeys())
	raceForBudget(t, s, p, []string{a.Envoy.URL(""), b.Envoy.URL("")})
}

// waitUntil sleeps until an instant.
func waitUntil(at time.Time) { time.Sleep(time.Until(at)) }

// beforeMinute waits until the next full minute is no further away than most and no nearer than half of that, and
// returns it.
func beforeMinute(most time.Duration) time.Time {
	boundary := time.Now().Truncate(time.Minute).Add(time.Minute)
	if time.Until(boundary) < most/2 {
		boundary = boundary.Add(time.Minute)
	}
	waitUntil(boundary.Add(-most))
	return boundary
}

// TestE07BudgetReset overspends minute budgets of a key and of a team, retries across the boundary on two replicas, and
// wants denials to change nothing and the first request of the new minute to pass.
func TestE07BudgetReset(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	const text = t1 + `
teams: [{id: team, limits: {budgets: [{usd: 0.02, per: minute}]}}]
keys:
  - {id: k, secret: sk-test-k, limits: {budgets: [{usd: 0.02, per: minute}]}}
  - {id: member, secret: sk-test-member, team: team}
`
	replicas := []*replica{startReplica(t, s, p, text), startReplica(t, s, p, text)}
	legs := []struct{ secret, counter, refused string }{
		{"sk-test-k", "tg:{k:k}:b:key:k", "key/k budget minute"},
		{"sk-test-member", "tg:{t:team}:b:team:team", "team/team budget minute"},
	}
	boundary := beforeMinute(10 * time.Second)
	p.Answer(providertest.Chat(providertest.Usage{Prompt: 10, Completion: 3000})(providertest.Hit{Body: []byte(ask(1000))}))
	look := func(counter string) string {
		c := s.Redis.Client()
		return fmt.Sprint(c.HGetAll(t.Context(), counter).Val(), c.PExpireTime(t.Context(), counter).Val())
	}
	before := map[string]string{}
	for i, leg := range legs {
		if got := replicas[0].chat(leg.secret, ask(1000)); got.Status != 200 {
			t.Fatalf("first answer = %+v", got)
		}
		s.settled(i + 1)
		s.wantBudget(leg.counter, "uminute", 3*cent, 0)
		before[leg.counter] = look(leg.counter)
	}
	p.Script(providertest.Chat(providertest.Usage{Prompt: 10})) // from here on what is asked for is used
	passed := map[string]int64{}
	for time.Now().Before(boundary.Add(4 * time.Second)) {
		for i, r := range replicas {
			for _, leg := range legs {
				begun := time.Now()
				got := r.chat(leg.secret, ask(100))
				ended := time.Now()
				switch {
				case got.Status == 200 && ended.Before(boundary):
					t.Fatalf("%s passed %s before the boundary", leg.refused, boundary.Sub(ended))
				case got.Status == 200:
					if passed[leg.counter] == 0 {
						s.settled(len(legs) + int(sum(passed)) + 1)
						s.wantBudget(leg.counter, "uminute", cent/10, 0) // that request only
					}
					passed[leg.counter]++
				case begun.After(boundary.Add(time.Second)):
					t.Fatalf("replica %d still denies %s after the boundary: %+v", i, time.Since(boundary), got)
				default:
					if got.Header.Get("x-tollgate-refused") != leg.refused || got.Header.Get("x-tollgate-budget-reset") != boundary.UTC().Format(time.RFC3339) {
						t.Errorf("refusal = %+v, want %s until %s", got, leg.refused, boundary)
					}
					if now := look(leg.counter); passed[leg.counter] == 0 && now != before[leg.counter] {
						t.Errorf("a denial changed\n%s\nto\n%s", before[leg.counter], now)
					}
				}
			}
		}
		time.Sleep(700 * time.Millisecond)
	}
	for _, leg := range legs {
		s.settled(len(legs) + int(sum(passed)))
		s.wantBudget(leg.counter, "uminute", passed[leg.counter]*cent/10, 0)
		if v := s.number(leg.counter, "uminute.S"); v != 3*cent {
			t.Errorf("the minute before holds %d, want %d", v, 3*cent)
		}
	}
}

func sum(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// refusedAs wants a 429 that names a limit, as in "key/k budget day".
func refusedAs(t *testing.T, got answered, refused string) {
	t.Helper()
	if got.Status != 429 || got.Header.Get("x-tollgate-refused") != refused {
		t.Errorf("answer %d refused by %q, want 429 by %q: %s", got.Status, got.Header.Get("x-tollgate-refused"), refused, got.Body)
	}
}

// passes wants a 200.
func passes(t *testing.T, got answered) {
	t.Helper()
	if got.Status != 200 {
		t.Errorf("answer = %+v, want 200", got)
	}
}

// TestAuditKeyPasses wants a key's `enforce: audit` to let its own limits pass and report them, and not to soften its
// team's.
func TestAuditKeyPasses(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, t1+`
teams: [{id: team, limits: {budgets: [{usd: 0.03, per: lifetime}]}}]
keys: [{id: k, secret: sk-test-a, team: team, enforce: audit, limits: {budgets: [{usd: 0.01, per: lifetime}], rpm: 1}}]
`)
	for i, want := range []string{"", "key/k budget lifetime", "key/k budget lifetime"} {
		got := r.chat("sk-test-a", ask(1000))
		passes(t, got)
		if would := got.Header.Get("x-tollgate-would-refuse"); would != want {
			t.Errorf("request %d: x-tollgate-would-refuse = %q, want %q", i, would, want)
		}
		s.settled(i + 1)
	}
	refusedAs(t, r.chat("sk-test-a", ask(1000)), "team/team budget lifetime")
	would := 0
	for _, record := range s.settled(3) {
		if record.WouldFail == "key/k budget lifetime" {
			would++
		}
	}
	if would != 2 {
		t.Errorf("%d records say what would have been refused, want 2", would)
	}
	s.wantBudget("tg:{t:team}:b:key:k", "ulifetime", 3*cent, 0) // counted all the same
	s.wantBudget("tg:{t:team}:b:team:team", "ulifetime", 3*cent, 0)
	if n := r.metric("tollgate_would_refuse_total"); n != 4 { // the budget and rpm, twice each
		t.Errorf("tollgate_would_refuse_total = %v, want 4", n)
	}
}

// metric is the sum of all series of a metric.
func (r *replica) metric(name string) (sum float64) {
	r.t.Helper()
	families, err := r.app.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// TestBudgetKinds covers what a budget can count and over which periods; each key is a case of its own.
func TestBudgetKinds(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, t1+`
  - {name: zero, deployments: [{name: z, url: "PROVIDER/v1", dialect: openai, price: {input: 0, output: 0}}]}
  - {name: nope, deployments: [{name: n, url: "PROVIDER/v1", dialect: openai, provider: nobody}]}
teams: [{id: team, limits: {budgets: [{usd: 5, per: month}]}}]
keys:
  - {id: soft, secret: sk-soft, limits: {budgets: [{usd: 0.01, per: month, soft: true}, {usd: 0.03, per: month}]}}
  - {id: tokens, secret: sk-tokens, limits: {budgets: [{tokens: 2100, per: month}]}}
  - {id: requests, secret: sk-requests, limits: {budgets: [{requests: 3, per: month}]}}
  - {id: short, secret: sk-short, limits: {budgets: [{usd: 0.02, per: month}, {usd: 0.02, per: week}, {usd: 1, per: lifetime}]}}
  - {id: long, secret: sk-long, limits: {budgets: [{usd: 0.5, per: week}, {usd: 0.02, per: month}]}}
  - {id: large, secret: sk-large, limits: {max_request: {usd: 0.005, input_tokens: 100}}}
  - {id: empty, secret: sk-empty, limits: {budgets: [{usd: 0, per: month}]}}
  - {id: free, secret: sk-free}
  - {id: member, secret: sk-member, team: team}
`)
	key := func(id string) string { return scopeKey("b", "key", id) }
	ask := func(model string, most int) string {
		return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":"hi"}]}`, model, most)
	}

	t.Run("soft budgets count and never refuse", func(t *testing.T) {
		for range 3 {
			passes(t, r.chat("sk-soft", ask("t1", 1000)))
		}
		s.recordsOf("soft", 3)
		refusedAs(t, r.chat("sk-soft", ask("t1", 1000)), "key/soft budget month")
		s.wantBudget(key("soft"), "umonth", 3*cent, 0)
		s.wantBudget(key("soft"), "umonthsoft", 3*cent, 0)
	})
	t.Run("tokens", func(t *testing.T) {
		for i := range 2 { // 10 tokens in and 1,000 out each
			passes(t, r.chat("sk-tokens", ask("t1", 1000)))
			s.recordsOf("tokens", i+1)
		}
		s.wantBudget(key("tokens"), "tmonth", 2020, 0)
		got := r.chat("sk-tokens", ask("t1", 1000))
		refusedAs(t, got, "key/tokens budget month")
		if l, left := got.Header.Get("x-tollgate-budget-limit"), got.Header.Get("x-tollgate-budget-remaining"); l != "2100" || left != "80" {
			t.Errorf("budget limit %q, remaining %q; want 2100, 80", l, left)
		}
		refusedAs(t, r.chat("sk-tokens", ask("zero", 1000)), "key/tokens budget month") // free of charge, not of tokens
		passes(t, r.chat("sk-tokens", ask("t1", 20)))                                   // a smaller one fits
	})
	t.Run("requests", func(t *testing.T) {
		p.Queue(providertest.JSON(500, `{"error":{"message":"boom","type":"server_error"}}`))
		if got := r.chat("sk-requests", ask("t1", 10)); got.Status != 500 {
			t.Errorf("answer = %+v", got)
		}
		for range 2 {
			passes(t, r.chat("sk-requests", ask("t1", 10)))
		}
		refusedAs(t, r.chat("sk-requests", ask("zero", 10)), "key/requests budget month")
		s.recordsOf("requests", 3)
		s.wantBudget(key("requests"), "rmonth", 3, 0)
	})
	t.Run("the shorter of several periods is named", func(t *testing.T) {
		for range 2 {
			passes(t, r.chat("sk-short", ask("t1", 1000)))
		}
		refusedAs(t, r.chat("sk-short", ask("t1", 1000)), "key/short budget week")
		s.recordsOf("short", 2)
		for _, per := range []string{"uweek", "umonth", "ulifetime"} {
			s.wantBudget(key("short"), per, 2*cent, 0)
		}
		if ttl := s.Redis.Client().PTTL(t.Context(), key("short")).Val(); ttl != -1 {
			t.Errorf("ttl of a hash with a lifetime budget = %v, want none", ttl)
		}
	})
	t.Run("the longer of several periods refuses too", func(t *testing.T) {
		for range 2 {
			passes(t, r.chat("sk-long", ask("t1", 1000)))
		}
		refusedAs(t, r.chat("sk-long", ask("t1", 1000)), "key/long budget month")
		if ttl := s.Redis.Client().PTTL(t.Context(), key("long")).Val(); ttl < 35*24*time.Hour {
			t.Errorf("ttl = %v, want at least 35 days", ttl)
		}
	})
	t.Run("max_request is refused before any trip", func(t *testing.T) {
		p.Reset()
		for _, body := range []string{ask("t1", 501), strings.Replace(ask("t1", 1), "hi", strings.Repeat("word ", 200), 1)} {
			got := r.chat("sk-large", body)
			if got.Status != 400 || !strings.Contains(got.Body, `"request_too_expensive"`) {
				t.Errorf("answer = %+v, want 400 request_too_expensive", got)
			}
		}
		if n := len(p.Hits()); n != 0 {
			t.Errorf("%d hits", n)
		}
		passes(t, r.chat("sk-large", ask("t1", 500)))
	})
	t.Run("a model without a price is refused where there is a budget", func(t *testing.T) {
		p.Reset()
		for _, secret := range []string{"sk-soft", "sk-empty", "sk-member"} {
			got := r.chat(secret, ask("nope", 10))
			if got.Status != 403 || !strings.Contains(got.Body, `"model_not_priced"`) {
				t.Errorf("%s: answer = %+v, want 403 model_not_priced", secret, got)
			}
		}
		if n := len(p.Hits()); n != 0 {
			t.Errorf("%d hits", n)
		}
		passes(t, r.chat("sk-free", ask("nope", 10)))
		if record := s.recordsOf("free", 1)[0]; record.CostNano != 0 || record.Outcome != ledger.Complete {
			t.Errorf("record = %+v", record)
		}
	})
	t.Run("a price of zero passes an empty budget", func(t *testing.T) {
		refusedAs(t, r.chat("sk-empty", ask("t1", 10)), "key/empty budget month")
		for range 2 { // the second time the refusal is known to memory
			passes(t, r.chat("sk-empty", ask("zero", 10)))
			refusedAs(t, r.chat("sk-empty", ask("t1", 10)), "key/empty budget month")
		}
		s.recordsOf("empty", 2)
		s.wantBudget(key("empty"), "umonth", 0, 0)
	})
}
