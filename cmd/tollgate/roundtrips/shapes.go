package roundtrips

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tollgate-proxy/tollgate/extproc/envoysim"
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/limit"
)

// store is one kind of Redis, with the shapes that are measured on it.
type store struct {
	name   string // the JSON field store
	open   func() (*bench, error)
	shapes []shape
}

// standalone is the kind that the peer's figures are of.
const standalone = "standalone"

// stores are all that is measured. A kind of Redis is added here, a shape to one of the lists.
func stores(r Redis) []store {
	every := slices.Concat(chats(), cacheHits(), refusals(), rows(), cold())
	list := []store{
		{name: standalone, open: func() (*bench, error) { return newBench(r.Addr, 1) }, shapes: every},
		{name: "counters, cache apart", open: func() (*bench, error) { return newBench(r.Addr, 2) }, shapes: slices.Concat(chats()[:1], cacheHits()[:1])},
	}
	if len(r.Cluster) > 0 {
		list = append(list, store{name: "cluster", open: func() (*bench, error) { return newClusterBench(r.Cluster) }, shapes: every})
	}
	return list
}

// shape is one kind of request to be measured.
type shape struct {
	name     string
	warm     int                                              // requests sent before the one that counts
	prepare  func(ctx context.Context, b *bench, n int) error // comes before the nth request; nil: nothing
	request  func(n int) envoysim.Request                     // the nth; the one that counts is the last
	first    string                                           // is in a command of the first trip, else the request is sent again; "": whatever is
	status   int
	upstream bool // is called
}

// published are the round trips that LiteLLM's proxy published on 2026-10-01 for a key and team with budgets and limits,
// usage-based routing and a Redis response cache: before its rework -> after it, and where it says so, how many of them
// came before + after the model call. The names are those of shapes.
var published = map[string]string{
	"chat":                         "22 -> 8 (12+10 -> 5+3)",
	"chat, identities expired":     "46 -> 16",
	"messages, identities expired": "40 -> 14",
}

// The secrets of the keys that are measured with.
const (
	governedKey = "sk-roundtrips-governed" // budgets, rpm, tpm, parallel, of key and team
	tightKey    = "sk-roundtrips-tight"    // one request a minute
	rowKey      = "sk-roundtrips-row"      // as the governed one, but from Redis
)

// chats are granted, and call the upstream.
func chats() []shape {
	granted := func(name, model string, stream bool) shape {
		return shape{name: name, warm: 3, request: different(governedKey, model, stream), status: 200, upstream: true}
	}
	return []shape{
		granted("chat", "usage", false),
		granted("chat, streaming", "usage", true),
		granted("chat, shuffle routing", "shuffle", false),
		granted("chat, shuffle routing, streaming", "shuffle", true),
	}
}

// cacheHits are granted, and answered from the response cache.
func cacheHits() []shape {
	hit := func(name string, stream bool) shape {
		return shape{name: name, warm: 2, request: same(stream), status: 200}
	}
	return []shape{
		hit("chat, cache hit", false),
		hit("chat, cache hit, streaming", true),
	}
}

// refusals are answered by the filter.
func refusals() []shape {
	return []shape{
		{name: "refused by a limit", warm: 1, request: different(tightKey, "usage", false), status: 429},
		{name: "refused by a limit known to memory", warm: 2, request: different(tightKey, "usage", false), status: 429},
		{name: "refused: unknown key", warm: 1, request: different("sk-roundtrips-unknown", "usage", false), status: 401},
	}
}

// rows are granted, to keys that come from Redis with the team, org and user that they belong to.
func rows() []shape {
	granted := func(s shape) shape {
		s.warm, s.status, s.upstream = 2, 200, true
		return s
	}
	return []shape{
		granted(shape{
			name: "chat, identities expired", request: different(rowKey, "usage", false), first: identityCopy,
			prepare: func(ctx context.Context, b *bench, n int) error {
				if n == 0 {
					return b.put(ctx, identities(rowKey, 1)...)
				}
				return b.expire(ctx)
			},
		}),
		granted(shape{
			name: "chat, identities changed", request: different(rowKey, "usage", true), first: identityCopy,
			prepare: func(ctx context.Context, b *bench, n int) error { return b.put(ctx, identities(rowKey, int64(n+2))...) },
		}),
		granted(shape{
			name:    "chat, key unknown to memory",
			request: func(n int) envoysim.Request { return different(numbered(n), "shuffle", false)(n) },
			prepare: func(ctx context.Context, b *bench, n int) error { return b.put(ctx, identities(numbered(n), 100)...) },
		}),
	}
}

// identityCopy is in the key of an identity's copy, and in no other.
const identityCopy = ":i:"

// numbered is the secret of a key that is used once.
func numbered(n int) string { return fmt.Sprint(rowKey, "-", n) }

// cold is a request whose scripts Redis has lost.
func cold() []shape {
	return []shape{{
		name: "chat, scripts lost", warm: 1, request: different(governedKey, "shuffle", true), status: 200, upstream: true,
		prepare: func(ctx context.Context, b *bench, _ int) error { return b.forget(ctx) },
	}}
}

// different asks something new each time, which no other shape has had answered.
func different(key, model string, stream bool) func(int) envoysim.Request {
	return func(int) envoysim.Request { return chat(key, model, stream, "question "+uuid.NewString()) }
}

// same asks what has been answered.
func same(stream bool) func(int) envoysim.Request {
	return func(int) envoysim.Request { return chat(governedKey, "usage", stream, "the same question") }
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
	limits, tight := governed(), governed()
	tight.RPM = rate(1)
	cfg.Teams = []config.Team{{ID: "team", Scope: config.Scope{Limits: limits}}}
	cfg.Keys = []config.Key{
		{ID: "governed", SecretSHA256: hash(governedKey), Team: "team", Scope: config.Scope{Limits: limits}},
		{ID: "tight", SecretSHA256: hash(tightKey), Team: "team", Scope: config.Scope{Limits: tight}},
	}
	return cfg
}

// governed are the limits of the keys and teams.
func governed() config.Limits {
	dollars := func(per config.Period) config.Budget {
		return config.Budget{Unit: config.USD, Amount: 1_000_000_000_000, Per: per}
	}
	return config.Limits{
		Budgets: []config.Budget{dollars(config.Day), dollars(config.Month)},
		RPM:     rate(100_000), TPM: rate(100_000_000), Parallel: rate(1000),
	}
}

// identities are a key of Redis, last, and what it belongs to.
func identities(secret string, revision int64) []*identity.Row {
	scope := config.Scope{Limits: governed()}
	org := limit.Home("org", "rows")
	parts := []*identity.Row{
		{Kind: identity.KindOrg, ID: "rows", Revision: revision, Home: org, Data: &config.Org{ID: "rows"}},
		{Kind: identity.KindTeam, ID: "rows", Revision: revision, Home: org, Data: &config.Team{ID: "rows", Org: "rows", Scope: scope}},
		{Kind: identity.KindUser, ID: "rows", Revision: revision, Home: limit.Home("user", "rows"), Data: &config.User{ID: "rows"}},
	}
	key := &config.Key{ID: secret, SecretSHA256: hash(secret), Team: "rows", User: "rows", Scope: scope}
	return append(parts, &identity.Row{
		Kind: identity.KindKey, ID: key.ID, Revision: revision, Home: org, Secret: key.SecretSHA256, Data: key, Parts: parts,
	})
}

func rate(n int64) *config.Rate { return &config.Rate{Limit: n} }

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
