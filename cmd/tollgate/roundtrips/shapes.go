package roundtrips

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tollgate-proxy/tollgate/extproc/envoysim"
	"github.com/tollgate-proxy/tollgate/governance/config"
)

// shape is one kind of request to be measured.
type shape struct {
	name     string
	litellm  string // round trips of LiteLLM's proxy: before its rework -> now
	warm     int    // requests sent before the one that counts
	request  func(n int) envoysim.Request
	status   int
	upstream bool // is called
}

// The secrets of the keys that are measured with.
const (
	governedKey = "sk-roundtrips-governed" // budgets, rpm, tpm, parallel, of key and team
	tightKey    = "sk-roundtrips-tight"    // one request a minute
)

// cases are the shapes. LiteLLM's figures are those it published on 2026-10-01 for a key and team with budgets and
// limits, usage-based routing and a Redis response cache.
func cases() []shape {
	different := func(key, model string, stream bool) func(int) envoysim.Request {
		return func(n int) envoysim.Request {
			return chat(key, model, stream, fmt.Sprintf("question %d to %s, streaming %t", n, model, stream))
		}
	}
	same := func(stream bool) func(int) envoysim.Request {
		return func(int) envoysim.Request { return chat(governedKey, "usage", stream, "the same question") }
	}
	return []shape{
		{"chat", "22 -> 8", 3, different(governedKey, "usage", false), 200, true},
		{"chat, streaming", "", 3, different(governedKey, "usage", true), 200, true},
		{"chat, shuffle routing", "", 3, different(governedKey, "shuffle", false), 200, true},
		{"chat, shuffle routing, streaming", "", 3, different(governedKey, "shuffle", true), 200, true},
		{"chat, cache hit", "", 2, same(false), 200, false},
		{"chat, cache hit, streaming", "", 2, same(true), 200, false},
		{"refused by a limit", "", 1, different(tightKey, "usage", false), 429, false},
		{"refused by a limit known to memory", "", 2, different(tightKey, "usage", false), 429, false},
		{"refused: unknown key", "", 1, different("sk-roundtrips-unknown", "usage", false), 401, false},
	}
}

func chat(key, model string, stream bool, text string) envoysim.Request {
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"max_tokens":20,"messages":[{"role":"user","content":%q}]}`, model, stream, text)
	return envoysim.Request{
		Method: "POST", Path: "/v1/chat/completions", Body: []byte(body),
		Header: [][2]string{{"content-type", "application/json"}, {"authorization", "Bearer " + key}},
	}
}

// answer is the upstream.
func answer(r *envoysim.Request) *envoysim.Answer {
	const usage = `"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}`
	if !strings.Contains(string(r.Body), `"stream":true`) {
		return &envoysim.Answer{Status: 200, Header: [][2]string{{"content-type", "application/json"}}, Pieces: [][]byte{[]byte(
			`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],` + usage + `}`,
		)}}
	}
	chunk := func(s string) []byte {
		return []byte(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",` + s + "}\n\n")
	}
	return &envoysim.Answer{Status: 200, Header: [][2]string{{"content-type", "text/event-stream"}}, Pieces: [][]byte{
		chunk(`"choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":null}]`),
		chunk(`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]`),
		chunk(`"choices":[],` + usage),
		[]byte("data: [DONE]\n\n"),
	}}
}

// configuration governs as LiteLLM's measurement did: budgets and limits on key and team, two deployments, the cache.
// The prefix is new each time, so that a Redis in use is not disturbed.
func configuration() *config.Config {
	cfg := config.Default()
	cfg.Redis.Prefix = "tg-roundtrips-" + uuid.NewString()[:8]
	cfg.Cache = &config.Cache{TTL: time.Minute, Scope: "team", MaxEntry: 1 << 20}
	price := int64(1_000_000_000)
	deployments := func(model string) []config.Deployment {
		var list []config.Deployment
		for _, name := range []string{"-a", "-b"} {
			list = append(list, config.Deployment{
				Name: model + name, URL: "http://127.0.0.1:1/v1", Dialect: "openai", Weight: 1, Order: 1, StreamUsage: true,
				Price: &config.Price{Input: &price, Output: &price}, Limits: config.Limits{RPM: rate(100_000), TPM: rate(100_000_000)},
			})
		}
		return list
	}
	for _, strategy := range []string{"usage", "shuffle"} {
		cfg.Models = append(cfg.Models, config.Model{Name: strategy, Strategy: strategy, Deployments: deployments(strategy)})
	}
	dollars := func(per config.Period) config.Budget {
		return config.Budget{Unit: config.USD, Amount: 1_000_000_000_000, Per: per}
	}
	limits := config.Limits{
		Budgets: []config.Budget{dollars(config.Day), dollars(config.Month)},
		RPM:     rate(100_000), TPM: rate(100_000_000), Parallel: rate(1000),
	}
	tight := limits
	tight.RPM = rate(1)
	cfg.Teams = []config.Team{{ID: "team", Scope: config.Scope{Limits: limits}}}
	cfg.Keys = []config.Key{
		{ID: "governed", SecretSHA256: hash(governedKey), Team: "team", Scope: config.Scope{Limits: limits}},
		{ID: "tight", SecretSHA256: hash(tightKey), Team: "team", Scope: config.Scope{Limits: tight}},
	}
	return cfg
}

func rate(n int64) *config.Rate { return &config.Rate{Limit: n} }

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
