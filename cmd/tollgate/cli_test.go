package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
)

// example is the whole configuration contract.
const example = "../../governance/config/testdata/tollgate.example.yaml"

// tollgate runs a command line in this process.
func tollgate(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = execute(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func TestCheckExplainsTheWholeContract(t *testing.T) {
	t.Parallel()
	code, out, errs := tollgate(t, "check", "--static", "--config", example)
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"models (3)", "team search:", "set, and not acted on by this version", "teams[0].regions"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	code, _, errs = tollgate(t, "check", "--config", example) // its variables are unset and its files are absent
	if code != 2 || !strings.Contains(errs, "tollgate.example.yaml:70: models[0].deployments[0].credential: environment variable OPENAI_API_KEY is not set") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestCommandLineMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, line, want string }{
		{"unknown command", "sreve", `tollgate: unknown command "sreve"; see tollgate --help`},
		{"unknown flag", "check --confg x", "tollgate: unknown flag: --confg"},
		{"no configuration", "serve", "tollgate: serve needs --config FILE"},
		{"a word too many", "check x", `tollgate: tollgate check takes no argument "x"; see tollgate check --help`},
		{"absent file", "serve --config /nonexistent.yaml", "tollgate: "},
		{"unknown format", "bench roundtrips --format xml", `tollgate: --format must be table, md or json, not "xml"`},
		{"redis with a password", "bench roundtrips --redis redis://:x@127.0.0.1:1/0", "tollgate: --redis: only a plain redis:// URL"},
		{"redis with a database", "bench writes --redis redis://127.0.0.1:1/3", "tollgate: --redis: only database 0 is measured on, not 3"},
		{"no writes", "bench writes --count 0", "tollgate: --count must be at least 1, not 0"},
		{"negative round trip", "bench writes --rtt -1ms", "tollgate: --rtt must be between 0 and 1s, not -1ms"},
		{"long round trip", "bench writes --rtt 1001ms", "tollgate: --rtt must be between 0 and 1s, not 1.001s"},
		{"unknown format of writes", "bench writes --format xml", `tollgate: --format must be table, md or json, not "xml"`},
	} {
		code, out, errs := tollgate(t, strings.Fields(tt.line)...)
		if code != 2 || out != "" || !strings.HasPrefix(errs, tt.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, output %q, error %q", tt.name, code, out, errs)
		}
	}
}

func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", "run", "serve", "check", "envoy", "envoy bootstrap", "bench", "bench roundtrips", "bench writes"} {
		code, out, errs := tollgate(t, append(strings.Fields(line), "--help")...)
		if code != 0 || errs != "" || len(out) < 100 {
			t.Errorf("%q: exit code %d, %q, %q", line, code, out, errs)
		}
		for i, l := range strings.Split(out, "\n") {
			if len(l) > 130 {
				t.Errorf("%q: line %d of the help is %d wide", line, i+1, len(l))
			}
		}
	}
}

func TestBootstrapCommand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	text := "version: 1\nmodels: [{name: m, deployments: [{name: d, url: 'https://api.openai.com/v1', dialect: openai, credential: top-secret}]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := tollgate(t, "envoy", "bootstrap", "--config", file)
	if code != 0 || errs != "" || strings.Contains(out, "top-secret") {
		t.Fatalf("exit code %d, error %q\n%s", code, errs, out)
	}
	envoytest.Validate(t, []byte(out))
}

func TestBenchRoundTripsCommand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real redis-server")
	}
	code, out, errs := tollgate(t, "bench", "roundtrips", "--format", "json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, l := range lines {
		var shape map[string]any
		if err := json.Unmarshal([]byte(l), &shape); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		for _, field := range []string{"shape", "store", "before", "waited_after", "written_after", "litellm"} {
			if _, ok := shape[field]; !ok {
				t.Errorf("no %s in %s", field, l)
			}
		}
	}
	if len(lines) != 28 || !strings.Contains(errs, "measuring: chat\n") {
		t.Errorf("%d lines, progress %q", len(lines), errs)
	}
}

func TestBenchWritesCommand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real redis-server")
	}
	code, out, errs := tollgate(t, "bench", "writes", "--count", "30", "--rtt", "0", "--format", "json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var hows []string
	for l := range strings.Lines(out) {
		var result struct {
			How       string   `json:"how"`
			MS        float64  `json:"ms"`
			Count     float64  `json:"count"`
			Ratio     float64  `json:"ratio"`
			RTT       *float64 `json:"rtt_ms"`
			Published float64  `json:"published_ms"`
		}
		if err := json.Unmarshal([]byte(l), &result); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		if result.MS <= 0 || result.Count != 30 || result.Ratio <= 0 || result.RTT == nil || result.Published <= 0 {
			t.Errorf("%s", l)
		}
		hows = append(hows, result.How)
	}
	if got := strings.Join(hows, " "); got != "single pipeline deferred" || errs != "measuring: one by one: 0 of 30\n" {
		t.Errorf("ways %q, progress %q", got, errs)
	}
}
