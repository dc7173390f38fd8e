package config

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// demo is the id of everything that AddDemo adds.
const demo = "demo"

// AddDemo adds a model "demo" served at upstreamURL, a team "demo" and a key "demo" whose secret is keySecret, with
// limits small enough to be met by hand, and turns the cache on when the configuration has none. It is for a
// configuration without deployments; a team or key of that id that the file has stays as it is. It changes c, so it must
// come before c is shared.
func (c *Config) AddDemo(upstreamURL, keySecret string) {
	input, output := Nano(150_000_000), Nano(600_000_000) // 0.15 and 0.60 dollars per million tokens
	c.Models = append(c.Models, Model{
		Name:     demo,
		Strategy: "usage",
		Deployments: []Deployment{{
			Name: demo, URL: upstreamURL, Dialect: "openai", Provider: providerOf(upstreamURL),
			Weight: 1, Order: 1, StreamUsage: true,
			Price: &Price{Input: &input, Output: &output},
		}},
	})
	if !slices.ContainsFunc(c.Teams, func(t Team) bool { return t.ID == demo }) {
		c.Teams = append(c.Teams, Team{ID: demo, Scope: Scope{Limits: Limits{
			Budgets:   []Budget{{Unit: USD, Amount: 10_000_000_000, Per: Day}},
			RPM:       &Rate{Limit: 600},
			TPM:       &Rate{Limit: 1_000_000},
			TPMCounts: CountTotal,
		}}})
	}
	if !slices.ContainsFunc(c.Keys, func(k Key) bool { return k.ID == demo }) {
		sum := sha256.Sum256([]byte(keySecret))
		c.Keys = append(c.Keys, Key{
			ID: demo, SecretSHA256: hex.EncodeToString(sum[:]), Team: demo,
			Scope: Scope{Limits: Limits{
				Budgets:  []Budget{{Unit: USD, Amount: 1_000_000_000, Per: Day}},
				Parallel: &Rate{Limit: 50},
			}},
		})
	}
	if c.Cache == nil {
		c.Cache = defaultCache()
	}
}
