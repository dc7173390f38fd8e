package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// stores is a Redis with a counting proxy in front of it, or a cluster with one before each node; tollgate speaks through
// the proxies.
type stores struct {
	t       *testing.T
	Redis   *redistest.Server
	Proxy   *redistest.Proxy
	Cluster *redistest.Cluster // nil: Redis
}

// url is where tollgate finds the Redis.
func (s *stores) url() string {
	if s.Cluster != nil {
		return s.Cluster.URL()
	}
	return s.Proxy.URL()
}

// client looks behind tollgate's back; at a single Redis it passes the proxy by.
func (s *stores) client() redis.Cmdable {
	if s.Cluster != nil {
		return s.Cluster.Client()
	}
	return s.Redis.Client()
}

func newStores(t *testing.T) *stores {
	t.Helper()
	server := redistest.Start(t)
	return &stores{t: t, Redis: server, Proxy: redistest.NewProxy(t, server.Addr())}
}

// field is a field of a counter's hash.
func (s *stores) field(key, field string) string {
	return s.client().HGet(context.Background(), key, field).Val()
}

// records are all spend records, in no order.
func (s *stores) records() []ledger.Record {
	s.t.Helper()
	var list []ledger.Record
	for i := range 16 {
		messages, err := s.client().XRange(context.Background(), fmt.Sprintf("tg:spend:{%d}", i), "-", "+").Result()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, m := range messages {
			r, err := ledger.Decode([]byte(m.Values["r"].(string)))
			if err != nil {
				s.t.Fatalf("record %v: %v", m.Values, err)
			}
			list = append(list, r)
		}
	}
	return list
}

// settled waits for n spend records and returns them.
func (s *stores) settled(n int) []ledger.Record {
	s.t.Helper()
	var list []ledger.Record
	for range 500 {
		if list = s.records(); len(list) >= n {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(list) != n {
		s.t.Fatalf("%d spend records, want %d: %+v", len(list), n, list)
	}
	return list
}

// replica is one tollgate with an Envoy of its own, in this process.
type replica struct {
	t     *testing.T
	app   *app
	Envoy *envoytest.Envoy
	Log   *syncBuffer
}

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// loadText loads a configuration from its text.
func loadText(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tollgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := load(path)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return cfg
}

// startReplica starts a tollgate and an Envoy for a configuration. The text may name the Redis as REDIS and the provider
// as PROVIDER; a stores of nil leaves the embedded store. edit may change Envoy's bootstrap.
func startReplica(t *testing.T, s *stores, p *providertest.Provider, text string, edit ...func(string) string) *replica {
	t.Helper()
	text = "version: 1\nlisten: {health: '127.0.0.1:0', admin: '127.0.0.1:0'}\ngateway: {address: '127.0.0.1:0'}\n" + text
	if s != nil {
		// Long enough for a machine that stalls; what a Redis that hangs does has tests with deadlines of their own.
		text += "\nredis: {url: 'REDIS', deadline: 10s}\n"
		text = strings.ReplaceAll(text, "REDIS", s.url())
	}
	if p != nil {
		text = strings.ReplaceAll(text, "PROVIDER", p.URL())
	}
	cfg := loadText(t, text)
	dir, err := os.MkdirTemp("", "tg") // short: a Unix socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, Log: new(syncBuffer)}
	log := slog.New(slog.NewJSONHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	socket := "unix:" + filepath.Join(dir, "extproc.sock")
	if r.app, err = newApp(cfg, addresses{extproc: socket, health: cfg.Listen.Health, admin: cfg.Listen.Admin}, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.app.shutdown(5 * time.Second)
		_ = os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("tollgate's log:\n%s", r.Log)
		}
	})
	boot, err := envoy.Bootstrap(cfg, envoy.BootstrapOptions{Processor: envoy.Upstream{Address: socket}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range edit {
		boot = []byte(e(string(boot)))
	}
	r.Envoy = envoytest.Start(t, boot)
	return r
}

// answered is an answer as the client got it.
type answered struct {
	Status int
	Header http.Header
	Body   string
}

// client has no limit of its own and keeps no connection between tests.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 60 * time.Second}
}

// newRequest is a request with a bearer key.
func (r *replica) newRequest(ctx context.Context, method, path, key string, body io.Reader) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.Envoy.URL(path), body)
	if err != nil {
		r.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("authorization", "Bearer "+key)
	}
	if body != nil {
		req.Header.Set("content-type", "application/json")
	}
	return req
}

// chat posts a chat request and reads the answer.
func (r *replica) chat(key, body string) answered {
	r.t.Helper()
	return r.do(r.newRequest(r.t.Context(), "POST", "/v1/chat/completions", key, strings.NewReader(body)))
}

func (r *replica) do(req *http.Request) answered {
	r.t.Helper()
	resp, err := client(r.t).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("after %d bytes: %v", len(body), err)
	}
	return answered{resp.StatusCode, resp.Header, string(body)}
}

// ask is a chat body for the model t1.
func ask(maxTokens int) string {
	return fmt.Sprintf(`{"model":"t1","max_tokens":%d,"messages":[{"role":"user","content":"hi"}]}`, maxTokens)
}

// t1 is a configuration part: the model t1 at $0 in and $10 out per million tokens, so that 1,000 output tokens cost
// $0.01.
const t1 = `
models:
  - name: t1
    deployments:
      - {name: p, url: "PROVIDER/v1", dialect: openai, credential: "provider-secret", price: {input: 0, output: 10}}
`

func TestGovernedCall(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startReplica(t, s, p, t1+`
teams: [{id: team, limits: {budgets: [{usd: 1, per: month}], rpm: 100, tpm: 100000}}]
keys: [{id: k, secret: sk-test-a, team: team, limits: {budgets: [{usd: 0.1, per: day}], rpm: 10, tpm: 100000, parallel: 4}}]
`)
	got := r.chat("sk-test-a", ask(1000))
	if got.Status != 200 {
		t.Fatalf("answer = %+v", got)
	}
	hits := p.Wait(1, time.Second)
	if len(hits) != 1 {
		t.Fatalf("%d hits", len(hits))
	}
	h := hits[0].Header
	if h.Get("authorization") != "Bearer provider-secret" || strings.Contains(string(hits[0].Raw), "sk-test-a") {
		t.Errorf("upstream headers = %v", h)
	}
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "x-tollgate-") {
			t.Errorf("upstream got %s", name)
		}
	}
	records := s.settled(1)
	if c := records[0].CostNano; c != 10_000_000 {
		t.Errorf("cost = %d nano-dollars, want 10,000,000", c)
	}
	if v := s.field("tg:{t:team}:b:key:k", "uday.s"); v != "10000000" {
		t.Errorf("key's counter = %q", v)
	}
	if v := s.field("tg:{t:team}:b:team:team", "umonth.s"); v != "10000000" {
		t.Errorf("team's counter = %q", v)
	}
}
