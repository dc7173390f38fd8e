package routing

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// first is a source that always draws the lowest number, so a group keeps the order of the configuration.
func first(int) int { return 0 }

func served(strategy string, deployments ...config.Deployment) *config.Config {
	return &config.Config{Models: []config.Model{{Name: "m", Strategy: strategy, Deployments: deployments}, {Name: "openai/*", Deployments: deployments}}}
}

func names(c []Candidate) []string {
	var out []string
	for _, x := range c {
		out = append(out, x.Deployment.Name+"="+x.UpstreamModel)
	}
	return out
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	tb := table(t, served("usage",
		config.Deployment{Name: "late", Dialect: "openai", Order: 2, Weight: 1},
		config.Deployment{Name: "eu", Dialect: "openai", Order: 1, Weight: 1, Region: "eu", Model: "m-2026"},
		config.Deployment{Name: "az", Dialect: "azure", Order: 1, Weight: 1, Region: "us"},
		config.Deployment{Name: "claude", Dialect: "anthropic", Order: 1, Weight: 1},
		config.Deployment{Name: "gem", Dialect: "gemini", Order: 1, Weight: 1},
		config.Deployment{Name: "rock", Dialect: "bedrock", Order: 1, Weight: 1},
	))
	regions := func(org, team, key []string) Access {
		return Access{Org: &config.Access{Regions: org}, Team: &config.Access{Regions: team}, Key: &config.Access{Regions: key}, TeamID: "t", KeyID: "k"}
	}
	for _, tt := range []struct {
		name   string
		access Access
		asked  string
		d      usage.Dialect
		want   []string
	}{
		{"openai paths: openai and azure, by order", Access{}, "m", usage.OpenAI, []string{"eu=m-2026", "az=m", "late=m"}},
		{"azure paths", Access{}, "m", usage.Azure, []string{"az=m"}},
		{"anthropic paths", Access{}, "m", usage.Anthropic, []string{"claude=m"}},
		{"gemini paths", Access{}, "m", usage.Gemini, []string{"gem=m"}},
		{"bedrock paths", Access{}, "m", usage.Bedrock, []string{"rock=m"}},
		{"the rest of a wildcard goes upstream", Access{}, "openai/o3", usage.OpenAI, []string{"eu=m-2026", "az=o3", "late=o3"}},
		{"a region rule leaves out those without a region", regions(nil, []string{"eu", "us"}, nil), "m", usage.OpenAI, []string{"eu=m-2026", "az=m"}},
		{"all region rules hold", regions(nil, []string{"eu", "us"}, []string{"us"}), "m", usage.OpenAI, []string{"az=m"}},
		{"no region left", regions([]string{"eu"}, nil, []string{"us"}), "m", usage.OpenAI, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tgt, refused := tb.Resolve(tt.access, tt.asked)
			if refused != nil {
				t.Fatal(refused)
			}
			kept := Candidate{Deployment: &config.Deployment{Name: "kept"}}
			got := tb.Candidates([]Candidate{kept}, tgt, tt.d, first)
			if got[0] != kept {
				t.Errorf("what was in dst is now %v", got[0])
			}
			if diff := cmp.Diff(tt.want, names(got[1:])); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}

// TestShuffleSpread draws often and compares with what the weights promise. The source is seeded, so the outcome is
// the same each time; four standard deviations of 20,000 draws are below 300.
func TestShuffleSpread(t *testing.T) {
	t.Parallel()
	deployments := []config.Deployment{
		{Name: "a", Dialect: "openai", Order: 1, Weight: 3},
		{Name: "b", Dialect: "openai", Order: 1, Weight: 1},
		{Name: "never first", Dialect: "openai", Order: 1, Weight: 0},
		{Name: "later", Dialect: "openai", Order: 2, Weight: 100},
	}
	for _, tt := range []struct {
		name     string
		strategy string
		want     map[string]int // how often first
	}{
		{"shuffle goes by weight", "shuffle", map[string]int{"a": 15000, "b": 5000}},
		{"usage is even", "usage", map[string]int{"a": 6667, "b": 6667, "never first": 6667}},
		{"latency is even", "latency", map[string]int{"a": 6667, "b": 6667, "never first": 6667}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tb := table(t, served(tt.strategy, deployments...))
			tgt, refused := tb.Resolve(Access{}, "m")
			if refused != nil {
				t.Fatal(refused)
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			got := map[string]int{}
			var dst []Candidate
			for range 20000 {
				dst = tb.Candidates(dst[:0], tgt, usage.OpenAI, rnd.IntN)
				if len(dst) != 4 || dst[3].Deployment.Name != "later" {
					t.Fatalf("candidates %v", names(dst))
				}
				if tt.strategy == "shuffle" && dst[2].Deployment.Name != "never first" {
					t.Fatalf("weight 0 is not last: %v", names(dst))
				}
				got[dst[0].Deployment.Name]++
			}
			for name, n := range got {
				if d := n - tt.want[name]; d < -300 || d > 300 {
					t.Errorf("%q was first %d times, want about %d", name, n, tt.want[name])
				}
			}
		})
	}
}

func TestCandidatesAllocateNothing(t *testing.T) {
	tb := table(t, served("shuffle",
		config.Deployment{Name: "a", Dialect: "openai", Weight: 3, Region: "eu"},
		config.Deployment{Name: "b", Dialect: "azure", Weight: 1, Region: "eu"},
	))
	access := Access{Team: &config.Access{Models: []string{"openai/*", "!openai/o1"}, Regions: []string{"eu"}, Endpoints: []string{"chat"}}, TeamID: "t"}
	dst := make([]Candidate, 0, 4)
	got := testing.AllocsPerRun(100, func() {
		if refused := EndpointAllowed(access, "chat"); refused != nil {
			t.Fatal(refused)
		}
		tgt, refused := tb.Resolve(access, "openai/o3")
		if refused != nil {
			t.Fatal(refused)
		}
		if dst = tb.Candidates(dst[:0], tgt, usage.OpenAI, rand.IntN); len(dst) != 2 {
			t.Fatal(names(dst))
		}
	})
	if got != 0 {
		t.Errorf("%v allocations a request, want none", got)
	}
}

func TestUnserved(t *testing.T) {
	t.Parallel()
	tb := table(t, served("usage", config.Deployment{Name: "a", Dialect: "openai", Region: "eu"}))
	access := Access{Team: &config.Access{Regions: []string{"us"}}, TeamID: "t"}
	for _, tt := range []struct {
		name    string
		access  Access
		d       usage.Dialect
		message string
		scope   string
	}{
		{"dialect", Access{}, usage.Anthropic, `the model "m" has no deployment that speaks the anthropic dialect of this path`, ""},
		{"region", access, usage.OpenAI, `the model "m" has no deployment in the regions that this key is bound to`, "team/t"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tgt, refused := tb.Resolve(tt.access, "m")
			if refused != nil {
				t.Fatal(refused)
			}
			if c := tb.Candidates(nil, tgt, tt.d, first); len(c) != 0 {
				t.Fatalf("served by %v", names(c))
			}
			got := tb.Unserved(tgt, tt.d)
			scope := ""
			if got.ScopeKind != "" {
				scope = got.ScopeKind + "/" + got.ScopeID
			}
			if got.Reason != refusal.NoDeployment || got.Message != tt.message || scope != tt.scope || got.Status(0) != 503 {
				t.Errorf("refusal %+v of %q, want %q of %q", got, scope, tt.message, tt.scope)
			}
		})
	}
}

func TestRegions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		access Access
		want   []string
		ruled  bool
	}{
		{"no rule", Access{Key: &config.Access{}}, nil, false},
		{"one", Access{Team: &config.Access{Regions: []string{"us", "eu", "us"}}}, []string{"eu", "us"}, true},
		{"two", Access{Team: &config.Access{Regions: []string{"us", "eu"}}, Key: &config.Access{Regions: []string{"eu", "ap"}}}, []string{"eu"}, true},
		{"contradicting", Access{Org: &config.Access{Regions: []string{"us"}}, Key: &config.Access{Regions: []string{"eu"}}}, []string{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ruled := tt.access.Regions()
			if ruled != tt.ruled {
				t.Errorf("ruled %v, want %v", ruled, tt.ruled)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("regions (-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkResolveAndCandidates(b *testing.B) {
	tb, err := New(served("shuffle", config.Deployment{Name: "a", Dialect: "openai", Weight: 3}, config.Deployment{Name: "b", Dialect: "azure", Weight: 1}))
	if err != nil {
		b.Fatal(err)
	}
	access := models([]string{"*"}, []string{"openai/*", "!openai/o1"}, nil)
	var dst []Candidate
	b.ReportAllocs()
	for b.Loop() {
		tgt, refused := tb.Resolve(access, "openai/o3")
		if refused != nil {
			b.Fatal(refused)
		}
		dst = tb.Candidates(dst[:0], tgt, usage.OpenAI, rand.IntN)
	}
}
