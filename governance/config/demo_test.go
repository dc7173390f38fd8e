package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDemoIsWhatAFileWouldSay: the demo is the configuration of a file that can be written down.
func TestDemoIsWhatAFileWouldSay(t *testing.T) {
	t.Parallel()
	want := mustLoadText(t, `models:
- name: demo
  deployments: [{name: demo, url: "http://127.0.0.1:1234/v1", dialect: openai, price: {input: 0.15, output: 0.60}}]
teams:
- {id: demo, limits: {budgets: [{usd: 10, per: day}], rpm: 600, tpm: 1000000}}
keys:
- {id: demo, secret: sk-tg-demo, team: demo, limits: {budgets: [{usd: 1, per: day}], parallel: 50}}
cache: {ttl: 60s}
`, nil)
	want.File = ""
	got := Default()
	got.AddDemo("http://127.0.0.1:1234/v1", "sk-tg-demo")
	if diff := cmp.Diff(want, got, sameZone); diff != "" {
		t.Errorf("(-file +demo):\n%s", diff)
	}
}

func TestDemoKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	c := mustLoadText(t, "teams: [{id: demo}]\nkeys: [{id: demo, secret: own}]\ncache: {ttl: 5s}\n", nil)
	c.AddDemo("http://127.0.0.1:1234/v1", "sk-tg-demo")
	if len(c.Teams) != 1 || len(c.Keys) != 1 || c.Keys[0].SecretSHA256 != sha("own") || showDuration(c.Cache.TTL) != "5s" || len(c.Models) != 1 {
		var b strings.Builder
		_ = c.Explain(&b)
		t.Error(b.String())
	}
}
