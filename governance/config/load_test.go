package config

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const examplePath = "testdata/tollgate.example.yaml"

// lookup is an environment with these variables.
func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := vars[name]
		return value, set
	}
}

// write puts files in a fresh directory and gives the directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		replace(t, filepath.Join(dir, name), text)
	}
	return dir
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// loadText loads a file "t.yaml" with this text and these variables, without a disk.
func loadText(text string, vars map[string]string) (*Config, error) {
	return parse("t.yaml", []byte(text), Options{Env: lookup(vars)})
}

func mustLoadText(t *testing.T, text string, vars map[string]string) *Config {
	t.Helper()
	c, err := loadText(text, vars)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func lines(found []Finding) string {
	var b strings.Builder
	for _, f := range found {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

func loadExample(t *testing.T) *Config {
	t.Helper()
	c, err := Load(examplePath, Options{Static: true, Env: lookup(nil)})
	if err != nil {
		t.Fatalf("the example does not load: %v", err)
	}
	return c
}

// TestExampleStatic loads the contract itself: every key of it is accepted, what is not built is listed.
func TestExampleStatic(t *testing.T) {
	t.Parallel()
	c := loadExample(t)
	golden(t, "example.notyet", lines(c.NotYet))
	golden(t, "example.missing", lines(c.Missing))
	if len(c.Warnings) > 0 {
		t.Errorf("warnings: %s", lines(c.Warnings))
	}
}

// TestExampleFailsWithoutItsVariables is the same file where it shall run: each unset variable is an error of its own.
func TestExampleFailsWithoutItsVariables(t *testing.T) {
	t.Parallel()
	c, err := Load(examplePath, Options{Env: lookup(nil)})
	var problems Problems
	if c != nil || !errors.As(err, &problems) {
		t.Fatalf("Load = %v, %v; want Problems", c, err)
	}
	want, _ := os.ReadFile("testdata/example.missing")
	if diff := cmp.Diff(string(want), err.Error()+"\n"); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExampleWithItsVariables(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t)
	dir := write(t, map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": cert, "prices.json": "{}"})
	path := filepath.Join(dir, "tollgate.yaml")
	replace(t, path, strings.ReplaceAll(string(text), "/etc/tollgate", dir))
	c, err := Load(path, Options{Env: lookup(map[string]string{
		"REDIS_PASSWORD": "1234", "PGPASSWORD": "pg", "TOLLGATE_ADMIN_TOKEN": "adm", "SEARCH_LEAD": "lead",
		"OPENAI_API_KEY": "sk-openai", "ANTHROPIC_API_KEY": "sk-ant", "SEARCH_CI_KEY": "sk-tg-ci",
		"SLACK_WEBHOOK": "https://hooks.slack.example/services/T0", "WEBHOOK_SECRET": "hush",
	})})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Missing) > 0 {
		t.Errorf("missing: %s", lines(c.Missing))
	}
	eu := c.Models[0].Deployments[0]
	got := map[string]any{
		"password": c.Redis.Password, "cert": c.TLS.Cert, "credential": eu.Credential, "kind": eu.Kind, "factor": eu.PriceFactor,
		"hash": c.Keys[0].SecretSHA256, "webhook": c.Alerts.Webhooks[0], "expires": c.Keys[0].Expires,
		"budgets": c.Teams[0].Limits.Budgets, "rpm": eu.Limits.RPM, "price": *c.Prices["openai/my-model"].CacheRead,
		"end user": c.EndUsers[0].Org, "provider": c.Models[1].Deployments[0].Provider,
	}
	want := map[string]any{
		"password": "1234", "cert": strings.TrimSuffix(cert, "\n"), "credential": "sk-openai", "kind": CredentialSecret, "factor": PriceFactor(820000),
		"hash":    sha("sk-tg-ci"),
		"webhook": Webhook{URL: "https://hooks.slack.example/services/T0", Format: "slack", Secret: "hush"},
		"expires": time.Date(2027, 12, 31, 0, 0, 0, 0, time.UTC),
		"budgets": []Budget{
			{Unit: USD, Amount: 100e9, Per: Month, Alert: []int{80, 100}},
			{Unit: USD, Amount: 10e9, Per: Day, Soft: true},
			{Unit: Tokens, Amount: 5000000, Per: Day},
		},
		"rpm": &Rate{Limit: 500}, "price": Nano(75_000_000), "end user": "acme", "provider": "anthropic",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDefaults compares the file's own promise, "outside models, identities, lists, URLs, secrets and limits, the value
// shown is the default", with what an empty file gives. Only what the promise or a comment exempts is taken from the
// example.
func TestDefaults(t *testing.T) {
	t.Parallel()
	got := Default()
	want := loadExample(t)

	want.File, want.Sources, want.NotYet, want.Missing = "", nil, nil, nil
	want.Listen.XDS = "" // "absent: off under serve"
	want.TLS = nil       // "absent: plaintext"
	want.Redis.URL, want.Redis.CacheURL = "", ""
	want.Redis.Username = "" // an identity
	want.Postgres = nil      // "absent: identities from this file"
	want.Journal = nil       // "absent: memory only"
	want.Auth.KeyHeaders, want.Auth.JWT = nil, nil
	want.Identity = IdentitySources{}
	want.Admin, want.Alerts = Admin{}, Alerts{}
	want.Limits, want.Providers = Limits{}, nil
	want.Models, want.AccessGroups, want.Endpoints.Pass = nil, nil, nil
	want.Prices, want.PriceMap = nil, nil
	want.Orgs, want.Teams, want.Users, want.Projects, want.TeamMembers = nil, nil, nil, nil, nil
	want.EndUsers, want.Tags, want.Keys = nil, nil, nil
	want.Cache = nil   // "absent: off"
	want.Tracing = nil // "absent: off"
	if diff := cmp.Diff(want, got, sameZone); diff != "" {
		t.Errorf("(-example +default):\n%s", diff)
	}
}

// TestDefaultsInside is the same for what is off as a whole when absent, but has defaults once it is there.
func TestDefaultsInside(t *testing.T) {
	t.Parallel()
	example := loadExample(t)
	c := mustLoadText(t, "cache: {}\njournal: {dir: /var/lib/tollgate}\npostgres: {url: 'postgres://tollgate@127.0.0.1:5432/tollgate'}\n", nil)
	if diff := cmp.Diff(example.Cache, c.Cache); diff != "" {
		t.Errorf("cache (-example +got):\n%s", diff)
	}
	if diff := cmp.Diff(example.Journal, c.Journal); diff != "" {
		t.Errorf("journal (-example +got):\n%s", diff)
	}
	if diff := cmp.Diff(example.Postgres, c.Postgres); diff != "" {
		t.Errorf("postgres (-example +got):\n%s", diff)
	}
}

func TestEmptyFiles(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "version: 1\n", "# nothing\n", "---\nversion: 1\n...\n", "\ufeffversion: 1\n", "teams:\nmodels: []\nlimits: {}\n"} {
		c := mustLoadText(t, text, nil)
		if diff := cmp.Diff(Default(), c, sameZone, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "File" }, cmp.Ignore())); diff != "" {
			t.Errorf("%q (-default +got):\n%s", text, diff)
		}
	}
}

var sameZone = cmp.Comparer(func(a, b *time.Location) bool { return a.String() == b.String() })

func TestLoadWithoutFile(t *testing.T) {
	t.Parallel()
	c, err := Load(filepath.Join(t.TempDir(), "none.yaml"), Options{})
	if c != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load = %v, %v; want fs.ErrNotExist", c, err)
	}
	if _, err = Load(t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("Load of a directory: %v", err)
	}
}
