package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNotYet is what is listed, by line and key, and what is not: a key at its default sets nothing.
func TestNotYet(t *testing.T) {
	t.Parallel()
	deployment := func(rest string) string {
		return "models: [{name: m, deployments: [{name: d, url: 'https://api.openai.com', dialect: openai, " + rest + "}]}]\n"
	}
	vars := map[string]string{"PLAIN": "redis://h:1/0", "TLS": "rediss://h:1/0", "CLIENT": "client"}
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"defaults in full", "routing: tollgate\nauth: {mode: required, jwt: []}\ncache: {merge_misses: false}\nledger: {retention: 400d}\nendpoints: {realtime: false, pass: []}\n", nil},
		{"built", "timezone: Europe/Berlin\ninclude: []\ndrain: 5s\nenforce: audit\nerrors: {budget_status: 402}\ndebug: {trips_header: true}\n" +
			"defaults: {output_tokens: 5, enforce_output_tokens: true, unpriced: deny, max_body: 1MiB}\ncache: {scope: org, allow_cross_tenant: true}\n" +
			"listen: {xds: '127.0.0.1:1', extproc: 'unix:/run/x'}\nledger: {stream_max: 5, end_user: hash}\nauth: {key_headers: [x-a]}\n", nil},
		{"empty", "limits: {}\ntracing:\nadmin: {tokens: []}\nproviders: {openai: {limits: {}}}\n", nil},
		{"plain redis", "redis: {url: 'redis://h', username: u, password: p, prefix: x, deadline: 1s, scripts: eval}\n", nil},
		{"redis socket", "redis: {url: 'unix:///run/redis.sock'}\n", nil},
		{"redis from a variable", "redis: {url: env:PLAIN}\n", nil},
		{"redis over TLS from a variable", "redis: {url: env:TLS}\n", nil},
		{"redis cluster", "redis: {url: 'redis+cluster://a:1,b:2'}\n", nil},
		{"redis sentinel", "redis: {url: 'redis+sentinel://a:1,b:2/master/0'}\n", nil},
		{"second redis", "redis:\n  url: redis://h\n  cache_url: redis://h2\n", nil},
		{"settings", "routing: envoy\nauth: {mode: optional}\ncache: {merge_misses: true}\nledger: {retention: 30d}\nendpoints: {realtime: {max_session: 30m}}\n",
			[]string{"1 routing", "2 auth.mode", "3 cache.merge_misses", "4 ledger.retention", "5 endpoints.realtime"}},
		{"deployment as built", deployment("rpm: 5, tpm: 5, weight: 2, order: 2, price_factor: 0.5, limits: {parallel: 5}, credential: envoy, stream_usage: false, price: {input: 0, output: 0}"), nil},
		{"deployment", deployment("region: eu, credential: client, limits: {budgets: [{usd: 1, per: day}]}"),
			[]string{"1 models[0].deployments[0].region", "1 models[0].deployments[0].credential", "1 models[0].deployments[0].limits.budgets"}},
		{"a secret that reads client", deployment("credential: env:CLIENT"), nil},
		{"strategies", "models:\n- {name: a, strategy: shuffle, deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}\n" +
			"- {name: b, strategy: cost, deployments: [{name: e, url: 'https://api.openai.com', dialect: azure}]}\n",
			[]string{"3 models[1].strategy", "3 models[1].deployments[0].dialect"}},
		{"team as built", "teams:\n- {id: a, enforce: audit, timezone: UTC, models: ['*'], endpoints: [chat], blocked: false, limits: {rpm: 1, tpm: 1, tpm_counts: input, parallel: 1, max_request: {usd: 1}, budgets: [{usd: 1, per: day, soft: true, enforce: audit}]}}\n", nil},
		{"scopes", "users:\n- id: u\n- {id: v, limits: {rpm: 1}}\norgs:\n- {id: o, limits: {rpm: 1}}\nkeys:\n- {id: k, secret: s, user: u}\n",
			[]string{"3 users[1].limits", "5 orgs[0].limits", "7 keys[0].user"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := mustLoadText(t, test.text, vars)
			got := []string(nil)
			for _, f := range c.NotYet {
				got = append(got, strings.TrimPrefix(strings.SplitN(f.String(), ": ", 2)[0], "t.yaml:")+" "+f.Key)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNotYetKeysExist: every row of the table names a key that the example has or the format accepts, so a misspelt row
// cannot hide a key that does nothing.
func TestNotYetKeysExist(t *testing.T) {
	t.Parallel()
	values := map[string]string{"endpoints.realtime": "{max_session: 1m}", "models[].deployments[].credential": "client"}
	for _, u := range notYet {
		segments := strings.Split(strings.ReplaceAll(u.key, "[]", ".[]"), ".")
		text := values[u.key]
		if text == "" {
			text = "{definitely: unknown}"
		}
		for i := len(segments) - 1; i >= 0; i-- {
			switch segments[i] {
			case "[]":
				text = "[" + text + "]"
			case "*":
				text = "{openai: " + text + "}"
			default:
				text = "{" + segments[i] + ": " + text + "}"
			}
		}
		c, err := parse("t.yaml", []byte(text), Options{Env: lookup(nil)})
		if len(c.NotYet) != 1 {
			t.Errorf("%s: %s gives %v", u.key, text, c.NotYet)
		}
		last := segments[len(segments)-1]
		if err != nil && strings.Contains(err.Error(), last+": unknown key") {
			t.Errorf("%s is no key: %v", u.key, err)
		}
	}
}
