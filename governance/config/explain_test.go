package config

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	c := loadExample(t)
	var b strings.Builder
	if err := c.Explain(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "example.explain", b.String())
}

func TestExplainRich(t *testing.T) {
	t.Parallel()
	c, err := Load("testdata/rich.yaml", Options{Env: lookup(nil)})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := c.Explain(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "rich.explain", b.String())
	if want := strings.ToLower("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"); c.Keys[0].SecretSHA256 != want {
		t.Errorf("hash %q, want lower case", c.Keys[0].SecretSHA256)
	}
}

// TestExplainShowsNoSecret loads every secret that a file can hold and looks for it in the text.
func TestExplainShowsNoSecret(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/secrets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := mustLoadText(t, string(text), map[string]string{"S": "https://h/VERYSECRET"})
	var b strings.Builder
	if err := c.Explain(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "VERYSECRET") || strings.Contains(b.String(), c.Keys[0].SecretSHA256) {
		t.Errorf("a secret is shown:\n%s", b.String())
	}
	if !strings.Contains(b.String(), "redis redis://h:6379/2, prefix") {
		t.Errorf("the store is not shown:\n%s", b.String())
	}
}

func TestExplainFailsWithItsWriter(t *testing.T) {
	t.Parallel()
	if err := Default().Explain(brokenWriter{}); !errors.Is(err, errBroken) {
		t.Errorf("error %v, want %v", err, errBroken)
	}
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWarnings(t *testing.T) {
	t.Parallel()
	c := mustLoadText(t, `models:
- name: m
  deployments:
  - {name: a, url: "http://127.0.0.1:8000/v1", dialect: openai}
  - {name: b, url: "http://127.0.0.1:8000/v1", dialect: openai, price: {input: 0, output: 0}}
  - {name: c, url: "http://127.0.0.1:8000/v1", dialect: openai, provider: opanai}
  - {name: d, url: "http://127.0.0.1:8000/v1", dialect: openai, provider: mine}
  - {name: e, url: "http://127.0.0.1:8000/v1", dialect: openai, model: priced}
  - {name: g, url: "http://127.0.0.1:8000/v1", dialect: openai, model: openai/gpt-x}
  - {name: f, url: "https://api.openai.com/v1", dialect: openai}
teams:
- {id: t, cache: {ttl: 5m}}
prices: {priced: {input: 1, output: 1}, mine/m: {input: 1, output: 1}, openai/gpt-x: {input: 1, output: 1}}
redis: {username: u}
`, nil)
	golden(t, "warnings", lines(c.Warnings))
}

func TestProviderOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, want string }{
		{"https://api.openai.com/v1", "openai"},
		{"https://API.OpenAI.com:443", "openai"},
		{"https://api.openai.com./v1", "openai"},
		{"https://api.anthropic.com", "anthropic"},
		{"https://generativelanguage.googleapis.com", "gemini"},
		{"https://mine.openai.azure.com/openai", "azure"},
		{"https://api.mistral.ai", "mistral"},
		{"https://api.groq.com/openai/v1", "groq"},
		{"https://api.x.ai", "xai"},
		{"https://api.deepseek.com", "deepseek"},
		{"https://api.together.xyz", "together"},
		{"https://api.fireworks.ai/inference", "fireworks"},
		{"https://api.cohere.com", "cohere"},
		{"https://bedrock-runtime.eu-central-1.amazonaws.com", "bedrock"},
		{"https://europe-west1-aiplatform.googleapis.com", "vertex"},
		{"http://127.0.0.1:8000/v1", ""},
		{"https://api.openai.com.example.net", ""},
		{"https://bedrock-runtime.example.net", ""},
		{"https://.openai.azure.com", ""},
		{"://", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := providerOf(test.name); got != test.want {
				t.Errorf("provider %q, want %q", got, test.want)
			}
		})
	}
}
