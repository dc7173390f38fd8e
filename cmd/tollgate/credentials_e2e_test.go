package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// TestE43HeaderForms presents one key in every way that clients write it. The provider's secret comes from a file that
// ends in a newline, as editors leave it.
func TestE43HeaderForms(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "provider.key")
	if err := os.WriteFile(secret, []byte("provider-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := providertest.New(t)
	r := startReplica(t, nil, p, fmt.Sprintf(`
auth: {key_headers: [x-litellm-api-key]}
models:
  - name: t1
    deployments:
      - {name: p, url: "PROVIDER/v1", dialect: openai, credential: "file:%s", price: {input: 0, output: 10}}
keys: [{id: k, secret: sk-test-a}, {id: other, secret: sk-test-b}]
`, secret))
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"
	for _, tt := range []struct {
		name   string
		header http.Header
		want   int
	}{
		{"bearer", http.Header{"Authorization": {"Bearer sk-test-a"}}, 200},
		{"lower case scheme", http.Header{"Authorization": {"bearer sk-test-a"}}, 200},
		{"upper case scheme and blanks", http.Header{"Authorization": {"BEARER  sk-test-a "}}, 200},
		{"x-api-key", http.Header{"X-Api-Key": {"sk-test-a"}}, 200},
		{"api-key", http.Header{"Api-Key": {"sk-test-a"}}, 200},
		{"x-goog-api-key", http.Header{"X-Goog-Api-Key": {"sk-test-a"}}, 200},
		{"two headers, equal", http.Header{"Authorization": {"Bearer sk-test-a"}, "X-Api-Key": {"sk-test-a"}}, 200},
		{"beside a login of its own", http.Header{"Authorization": {"Bearer " + jwt}, "X-Api-Key": {"sk-test-a"}}, 200},
		{"beside an Anthropic login", http.Header{"Authorization": {"Bearer sk-ant-oat01-x"}, "X-Api-Key": {"sk-test-a"}}, 200},
		{"key header", http.Header{"X-Litellm-Api-Key": {"sk-test-a"}}, 200},
		{"key header with a scheme", http.Header{"X-Litellm-Api-Key": {"Bearer sk-test-a"}}, 200},
		{"key header beside another key", http.Header{"X-Litellm-Api-Key": {"sk-test-a"}, "X-Api-Key": {"sk-unknown"}}, 200},
		{"unknown in the key header", http.Header{"X-Litellm-Api-Key": {"sk-unknown"}, "X-Api-Key": {"sk-test-a"}}, 401},
		{"empty key header", http.Header{"X-Litellm-Api-Key": {""}, "X-Api-Key": {"sk-test-a"}}, 401},
		{"no scheme", http.Header{"Authorization": {"sk-test-a"}}, 401},
		{"basic", http.Header{"Authorization": {"Basic sk-test-a"}}, 401},
		{"two headers, different", http.Header{"Authorization": {"Bearer sk-test-a"}, "X-Api-Key": {"sk-test-b"}}, 401},
		{"two headers, one unknown", http.Header{"Authorization": {"Bearer sk-test-a"}, "X-Api-Key": {"sk-unknown"}}, 401},
		{"two authorization headers", http.Header{"Authorization": {"Bearer sk-test-a", "Bearer sk-test-a"}}, 401},
		{"upper case key", http.Header{"Authorization": {"Bearer SK-TEST-A"}}, 401},
		{"nothing", http.Header{}, 401},
	} {
		t.Run(tt.name, func(t *testing.T) { // one after the other: each looks at the provider's last hit
			p.Reset()
			req := r.newRequest(t.Context(), "POST", "/v1/chat/completions", "", strings.NewReader(ask(1)))
			for name, values := range tt.header {
				req.Header[name] = values
			}
			got := r.do(req)
			if got.Status != tt.want {
				t.Fatalf("answer = %d %s, want %d", got.Status, got.Body, tt.want)
			}
			hits := p.Hits()
			if tt.want != 200 {
				checkRefusal(t, got, refusalWanted{status: 401, kind: "invalid_request_error", code: "invalid_api_key", final: true})
				if len(hits) != 0 {
					t.Errorf("the provider was hit")
				}
				return
			}
			if len(hits) != 1 {
				t.Fatalf("%d hits, want 1", len(hits))
			}
			checkProviderCredential(t, hits[0])
		})
	}
}

// checkProviderCredential wants the provider's own secret, without the newline of its file, and nothing of the client's.
func checkProviderCredential(t *testing.T, hit providertest.Hit) {
	t.Helper()
	if got := hit.Header.Values("authorization"); len(got) != 1 || got[0] != "Bearer provider-secret" {
		t.Errorf("the provider got authorization %q", got)
	}
	raw := strings.ToLower(string(hit.Raw))
	for _, leak := range []string{"sk-test", "sk-unknown", "sk-ant-oat", "eyjhbgci", "x-api-key", "x-litellm", "x-tollgate-"} {
		if strings.Contains(raw, leak) {
			t.Errorf("the provider got %q:\n%s", leak, hit.Raw)
		}
	}
}

// TestE42UnknownKeys wants keys that nobody has to cost Redis nothing and the process no memory, and a good key to go
// on working beside them.
func TestE42UnknownKeys(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startSeparate(t, s, p, t1+`keys: [{id: k, secret: sk-test-a, limits: {rpm: 100000}}]`)
	unknown := func(key string) {
		req := r.newRequest(t.Context(), "POST", "/v1/chat/completions", key, strings.NewReader(ask(1)))
		status, err := statusOf(r.http, req)
		if err != nil || status != 401 {
			t.Errorf("key of %d bytes: %d, %v, want 401", len(key), status, err)
		}
	}
	// What the process needs for 200 requests it has by then.
	spread(200, func(int) { unknown("sk-tg-unknown") })
	before := r.memory("VmRSS")
	s.Proxy.Reset()

	spread(2000, func(int) { unknown("sk-tg-unknown") })
	spread(2000, func(i int) { unknown(fmt.Sprintf("sk-tg-%d-%d", i, rand.Uint64())) })
	unknown(" ")                        // an empty bearer
	unknown(strings.Repeat("a", 20000)) // longer than any key
	long := r.newRequest(t.Context(), "POST", "/v1/chat/completions", strings.Repeat("a", 64<<10), strings.NewReader(ask(1)))
	// Envoy refuses them while they still arrive, so that a client may see no more than the end of its connection.
	if status, err := statusOf(r.http, long); err == nil && status != 431 && status != 401 {
		t.Errorf("64 KiB of bearer: %d, want Envoy's 431 or our 401", status)
	}

	if trips := requestTrips(s.Proxy.Trips()); len(trips) != 0 {
		t.Errorf("unknown keys cost %d round trips: %+v", len(trips), trips[0])
	}
	if keys := s.Redis.Client().Keys(t.Context(), "*").Val(); len(keys) > 1 { // the list of live replicas
		t.Errorf("unknown keys left keys in Redis: %q", keys)
	}
	if grown := r.memory("VmRSS") - before; grown > 32<<20 {
		t.Errorf("4,000 unknown keys grew the process by %d KiB", grown>>10)
	}
	if hits := p.Hits(); len(hits) != 0 {
		t.Errorf("%d calls without a key reached the provider", len(hits))
	}
	if got := r.chat("sk-test-a", ask(1)); got.Status != 200 {
		t.Errorf("the good key: %d %s", got.Status, got.Body)
	}
}

// requestTrips are the trips that belong to requests: not the process' own upkeep.
func requestTrips(all []tripcount.Trip) []tripcount.Trip {
	var list []tripcount.Trip
	for _, trip := range all {
		upkeep := true
		for _, cmd := range trip.Commands {
			switch strings.ToUpper(cmd[0]) {
			case "SCRIPT", "ZADD", "ZREMRANGEBYSCORE", "PEXPIRE", "ZCARD", "PING", "INFO":
			default:
				upkeep = false
			}
		}
		if !upkeep {
			list = append(list, trip)
		}
	}
	return list
}

// spread calls do for 0 to n-1, sixteen at a time, and returns when all are done.
func spread(n int, do func(i int)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range min(16, n) {
		wait.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}

// statusOf does a request, reads the answer to its end and keeps the status. It may be called from any goroutine.
func statusOf(c *http.Client, req *http.Request) (int, error) {
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body) // a client that leaves before the end is charged for what was seen
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// TestCredentialInQueryStaysHere wants the key of a query to count on Gemini's paths only, and never to go upstream.
func TestCredentialInQueryStaysHere(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	r := startReplica(t, nil, p, t1+`keys: [{id: k, secret: sk-test-a}]`)
	path := "/v1/chat/completions?api-version=1&key=sk-test-a&k%65y=sk-test-a"
	if got := r.do(r.newRequest(t.Context(), "POST", path, "", strings.NewReader(ask(1)))); got.Status != 401 {
		t.Errorf("a key in the query of an OpenAI path: %d, want 401", got.Status)
	}
	if got := r.do(r.newRequest(t.Context(), "POST", path, "sk-test-a", strings.NewReader(ask(1)))); got.Status != 200 {
		t.Fatalf("answer = %+v", got)
	}
	hits := p.Wait(1, time.Second)
	if len(hits) != 1 || hits[0].Path != "/v1/chat/completions?api-version=1" {
		t.Errorf("hits = %+v, want one without the credential", hits)
	}
}

// refusing is a configuration in which each refusal has its key.
const refusing = `
models:
  - name: t1
    deployments: [{name: p, url: "PROVIDER/v1", dialect: openai, credential: "provider-secret", price: {input: 0, output: 10}}]
  - name: nope
    deployments: [{name: q, url: "PROVIDER/v1", dialect: openai, provider: nobody, credential: "provider-secret"}]
  - name: busy
    deployments: [{name: b, url: "PROVIDER/v1", dialect: openai, credential: "provider-secret", rpm: 1, price: {input: 0, output: 0}}]
teams: [{id: team, limits: {budgets: [{usd: 0.01, per: day}]}}]
keys:
  - {id: good, secret: sk-test-good, limits: {budgets: [{usd: 1, per: month}]}}
  - {id: free, secret: sk-test-free}
  - {id: blocked, secret: sk-test-blocked, blocked: true}
  - {id: expired, secret: sk-test-expired, expires: 2020-01-01T00:00:00Z}
  - {id: models, secret: sk-test-models, models: [nope]}
  - {id: endpoints, secret: sk-test-endpoints, endpoints: [embeddings]}
  - {id: rpm, secret: sk-test-rpm, limits: {rpm: 1}}
  - {id: tpm, secret: sk-test-tpm, limits: {tpm: 1000}}
  - {id: parallel, secret: sk-test-parallel, limits: {parallel: 1}}
  - {id: life, secret: sk-test-life, limits: {budgets: [{usd: 0.001, per: lifetime}]}}
  - {id: requests, secret: sk-test-requests, limits: {budgets: [{requests: 1, per: hour}]}}
  - {id: member, secret: sk-test-member, team: team}
  - {id: max, secret: sk-test-max, limits: {max_request: {usd: 0.001}}}
`

// TestRefusals checks each refusal as a client gets it, in the order of governance.md.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, refusing)
	unauthorized := refusalWanted{status: 401, kind: "invalid_request_error", code: "invalid_api_key", final: true}
	forbidden := refusalWanted{status: 403, kind: "invalid_request_error", code: "model_not_allowed", final: true}
	broke := refusalWanted{status: 429, kind: "insufficient_quota", code: "insufficient_quota", final: true}
	rate := refusalWanted{status: 429, kind: "requests", code: "rate_limit_exceeded", wait: true}
	for _, tt := range []struct {
		name, key, body string
		want            refusalWanted
		refused         string
	}{
		{"no key", "", ask(1), unauthorized, "- no_credential"},
		{"unknown key", "sk-test-unknown", ask(1), unauthorized, "- unknown_key"},
		{"blocked", "sk-test-blocked", ask(1), unauthorized, ""},
		{"expired", "sk-test-expired", ask(1), unauthorized, ""},
		{"endpoint", "sk-test-endpoints", ask(1), forbidden, "key/endpoints endpoint_not_allowed"},
		{"model", "sk-test-models", ask(1), forbidden, "key/models model_not_allowed"},
		{"unknown model", "sk-test-good", `{"model":"x","messages":[]}`, refusalWanted{status: 404, kind: "invalid_request_error", code: "model_not_found", final: true}, "- model_not_found"},
		{"no JSON", "sk-test-good", `{`, refusalWanted{status: 400, kind: "invalid_request_error"}, "- malformed"},
		{"no price", "sk-test-good", `{"model":"nope","messages":[]}`, refusalWanted{status: 403, kind: "invalid_request_error", code: "model_not_priced", final: true}, "- unpriced"},
		{"too expensive", "sk-test-max", ask(101), refusalWanted{status: 400, kind: "invalid_request_error", code: "request_too_expensive"}, ""},
		{"lifetime budget", "sk-test-life", ask(101), broke, "key/life budget lifetime"},
		{"team's budget", "sk-test-member", ask(1001), broke, "team/team budget day"},
		{"tokens above the whole limit", "sk-test-tpm", ask(2000), refusalWanted{status: 429, kind: "tokens", code: "rate_limit_exceeded", final: true}, "key/tpm tpm"},
	} {
		got := r.chat(tt.key, tt.body)
		tt.want.refused = tt.refused
		t.Run(tt.name, func(t *testing.T) {
			checkRefusal(t, got, tt.want)
			_, resets := got.Header["X-Tollgate-Budget-Reset"]
			if want := strings.HasSuffix(tt.refused, " day"); resets != want {
				t.Errorf("x-tollgate-budget-reset: %t, want %t", resets, want)
			}
		})
	}
	if hits := p.Hits(); len(hits) != 0 || len(s.records()) != 0 {
		t.Errorf("%d refused calls reached the provider, %d are in the books", len(hits), len(s.records()))
	}
	// Limits that one call uses up.
	for _, tt := range []struct {
		name, key, first, second string
		want                     refusalWanted
	}{
		{"rpm", "sk-test-rpm", ask(1), ask(1), rate.by("key/rpm rpm")},
		{"tpm", "sk-test-tpm", ask(900), ask(500), refusalWanted{status: 429, kind: "tokens", code: "rate_limit_exceeded", wait: true, refused: "key/tpm tpm"}},
		{"requests", "sk-test-requests", ask(1), ask(1), broke.by("key/requests budget hour")},
		{"deployments at their limit", "sk-test-free", `{"model":"busy","messages":[]}`, `{"model":"busy","messages":[]}`, rate},
	} {
		if got := r.chat(tt.key, tt.first); got.Status != 200 {
			t.Fatalf("%s: %+v", tt.name, got)
		}
		t.Run(tt.name, func(t *testing.T) { checkLimitRefusal(t, r.chat(tt.key, tt.second), tt.want) })
	}
	r.checkParallelRefusal(p, rate.by("key/parallel parallel"))
	r.checkUnknownPaths(t)
}

// by is the refusal by a certain limit.
func (w refusalWanted) by(refused string) refusalWanted {
	w.refused = refused
	return w
}

// checkLimitRefusal checks a refusal by a limit with the headers and numbers that describe it.
func checkLimitRefusal(t *testing.T, got answered, want refusalWanted) {
	t.Helper()
	body := checkRefusal(t, got, want)
	switch {
	case strings.HasSuffix(want.refused, " rpm"):
		if h := got.Header; h.Get("x-ratelimit-limit-requests") != "1" || h.Get("x-ratelimit-remaining-requests") != "0" {
			t.Errorf("headers %v", h)
		}
	case strings.HasSuffix(want.refused, " tpm"):
		left, err := strconv.Atoi(got.Header.Get("x-ratelimit-remaining-tokens"))
		if err != nil || left < 0 || left > 100 || got.Header.Get("x-ratelimit-limit-tokens") != "1000" {
			t.Errorf("headers %v", got.Header)
		}
	}
	if want.wait {
		seconds, _ := strconv.Atoi(got.Header.Get("retry-after"))
		if ms, err := strconv.Atoi(got.Header.Get("retry-after-ms")); err == nil && (ms > seconds*1000 || ms <= (seconds-1)*1000) {
			t.Errorf("retry-after %d and retry-after-ms %d", seconds, ms)
		}
	}
	if want.refused == "" {
		return
	}
	details := body.Error.Tollgate
	if details["scope"] != "key" || details["amount"] == nil || details["spent"] == nil || details["estimate"] == nil {
		t.Errorf("details %v", details)
	}
}

// checkParallelRefusal asks while the only slot is taken.
func (r *replica) checkParallelRefusal(p *providertest.Provider, want refusalWanted) {
	r.t.Helper()
	slow := make(chan struct{})
	p.Script(func(h providertest.Hit) providertest.Reply {
		<-slow
		return providertest.Chat(providertest.Usage{})(h)
	})
	first := make(chan int, 1)
	p.Reset()
	go func() {
		status, _ := statusOf(client(r.t), r.newRequest(r.t.Context(), "POST", "/v1/chat/completions", "sk-test-parallel", strings.NewReader(ask(1))))
		first <- status
	}()
	waitFor(r.t, "the first call", func() bool { return len(p.Hits()) == 1 })
	checkLimitRefusal(r.t, r.chat("sk-test-parallel", ask(1)), want)
	close(slow)
	if status := <-first; status != 200 {
		r.t.Errorf("the first call: %d", status)
	}
}

// checkUnknownPaths wants paths that are not served to be refused in the dialect that their clients speak.
func (r *replica) checkUnknownPaths(t *testing.T) {
	t.Helper()
	unknown := refusalWanted{status: 404, kind: "invalid_request_error", code: "unknown_endpoint", final: true}
	for _, path := range []string{"/v1/unknown", "/", "/v1/chat/completions/x", "/v1/chat%2Fcompletions", "/v1/Chat/Completions"} {
		checkRefusal(t, r.do(r.newRequest(t.Context(), "POST", path, "sk-test-good", strings.NewReader(ask(1)))), unknown)
	}
	for key, want := range map[string]refusalWanted{
		"sk-test-good": {status: 404, kind: "not_found_error", final: true},
		"sk-test-none": {status: 401, kind: "authentication_error", final: true},
	} {
		got := r.do(r.newRequest(t.Context(), "POST", "/v1/messages", key, strings.NewReader(ask(1))))
		if body := checkRefusal(t, got, want); body.Type != "error" || body.RequestID != got.Header.Get("request-id") {
			t.Errorf("not as Anthropic writes errors: %s", got.Body)
		}
	}
	if got := r.do(r.newRequest(t.Context(), "POST", "//v1//chat/completions?api-version=1", "sk-test-free", strings.NewReader(ask(1)))); got.Status != 200 {
		t.Errorf("runs of slashes: %d %s", got.Status, got.Body)
	}
}

// TestRefusalsOfTheGateway are those that are no fault of the client's: the store is away, the process is leaving.
func TestRefusalsOfTheGateway(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, "errors: {budget_status: 402}\n"+refusing)
	broke := refusalWanted{status: 402, kind: "insufficient_quota", code: "insufficient_quota", final: true, refused: "key/life budget lifetime"}
	checkRefusal(t, r.chat("sk-test-life", ask(101)), broke)
	s.Proxy.Refuse(true)
	down := r.chat("sk-test-good", ask(1))
	checkRefusal(t, down, refusalWanted{status: 503, kind: "server_error", wait: true})
	if down.Header.Get("retry-after") != "1" {
		t.Errorf("retry-after = %q, want 1", down.Header.Get("retry-after"))
	}
	s.Proxy.Refuse(false)
	if err := r.app.gate.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkRefusal(t, r.chat("sk-test-good", ask(1)), refusalWanted{status: 503, kind: "server_error", wait: true})
	if hits := p.Hits(); len(hits) != 0 {
		t.Errorf("%d refused calls reached the provider", len(hits))
	}
}
