package routing

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

func sample() *config.Config {
	return &config.Config{
		Models: []config.Model{
			{Name: "gpt-4o-mini", Aliases: []string{"mini"}, Fallbacks: []string{"openai/gpt-4.1-nano", "claude-haiku", "nowhere", "gpt-4o-mini"}},
			{Name: "claude-haiku"},
			{Name: "*"},
			{Name: "openai/*"},
			{Name: "openai/gpt-*"},
			{Name: "openai/gpt-4.1"},
			{Name: "two words"},
		},
		AccessGroups: map[string][]string{"cheap": {"gpt-4o-mini", "claude-haiku"}, "open": {"openai/*"}},
	}
}

func table(t *testing.T, cfg *config.Config) *Table {
	t.Helper()
	table, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// models is the access of a key whose org, team and key have these lists.
func models(org, team, key []string) Access {
	return Access{
		Org: &config.Access{Models: org}, Team: &config.Access{Models: team}, Key: &config.Access{Models: key},
		OrgID: "acme", TeamID: "search", KeyID: "ci",
	}
}

func TestResolveEntry(t *testing.T) {
	t.Parallel()
	tb := table(t, sample())
	for _, tt := range []struct{ name, asked, entry, resolved, rest string }{
		{"exact", "claude-haiku", "claude-haiku", "claude-haiku", "claude-haiku"},
		{"global alias", "mini", "gpt-4o-mini", "gpt-4o-mini", "gpt-4o-mini"},
		{"exact beats wildcards", "openai/gpt-4.1", "openai/gpt-4.1", "openai/gpt-4.1", "openai/gpt-4.1"},
		{"longest wildcard", "openai/gpt-4o", "openai/gpt-*", "openai/gpt-4o", "gpt-4o"},
		{"shorter wildcard", "openai/o3", "openai/*", "openai/o3", "o3"},
		{"a slash in the rest stays", "openai/ft/x", "openai/*", "openai/ft/x", "ft/x"},
		{"the star stands for something", "openai/", "*", "openai/", "openai/"},
		{"catch-all", "llama", "*", "llama", "llama"},
		{"names are case sensitive", "Claude-haiku", "*", "Claude-haiku", "Claude-haiku"},
		{"an exact name may have blanks", "two words", "two words", "two words", "two words"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, refused := tb.Resolve(Access{}, tt.asked)
			if refused != nil {
				t.Fatal(refused)
			}
			if got.Model.Name != tt.entry || got.Name != tt.resolved || got.Rest != tt.rest || got.Asked != tt.asked {
				t.Errorf("got entry %q, name %q, rest %q; want %q, %q, %q", got.Model.Name, got.Name, got.Rest, tt.entry, tt.resolved, tt.rest)
			}
		})
	}
}

func TestResolveAliases(t *testing.T) {
	t.Parallel()
	tb := table(t, sample())
	aliases := func(org, team, key map[string]string) Access {
		return Access{Org: &config.Access{Aliases: org}, Team: &config.Access{Aliases: team}, Key: &config.Access{Aliases: key}}
	}
	one := func(to string) map[string]string { return map[string]string{"fast": to} }
	for _, tt := range []struct {
		name  string
		in    Access
		asked string
		want  string
	}{
		{"org first", aliases(one("openai/a"), one("openai/b"), one("openai/c")), "fast", "openai/a"},
		{"then team", aliases(nil, one("openai/b"), one("openai/c")), "fast", "openai/b"},
		{"then key", aliases(nil, nil, one("openai/c")), "fast", "openai/c"},
		{"then global", aliases(nil, nil, one("openai/c")), "mini", "gpt-4o-mini"},
		{"a team's alias hides a model", aliases(nil, map[string]string{"gpt-4o-mini": "claude-haiku"}, nil), "gpt-4o-mini", "claude-haiku"},
		{"once: not from level to level", aliases(one("openai/a"), map[string]string{"openai/a": "openai/b"}, nil), "fast", "openai/a"},
		{"once: a circle ends", aliases(one("fast"), nil, nil), "fast", "fast"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, refused := tb.Resolve(tt.in, tt.asked)
			if refused != nil {
				t.Fatal(refused)
			}
			if got.Name != tt.want {
				t.Errorf("%q is %q, want %q", tt.asked, got.Name, tt.want)
			}
		})
	}
}

func TestResolveAccess(t *testing.T) {
	t.Parallel()
	cfg := sample()
	cfg.Models = append(cfg.Models[:2], cfg.Models[3:]...) // without the catch-all
	tb := table(t, cfg)
	for _, tt := range []struct {
		name   string
		access Access
		asked  string
		status int    // 0: allowed
		scope  string // that refuses
	}{
		{"no lists", Access{}, "claude-haiku", 0, ""},
		{"empty lists", models(nil, nil, nil), "claude-haiku", 0, ""},
		{"unknown", models(nil, nil, nil), "nope", 404, ""},
		{"unknown behind a blank", models(nil, nil, nil), "openai/o3 ", 404, ""},
		{"far too long", models(nil, nil, nil), "openai/" + strings.Repeat("x", maxName), 404, ""},
		{"empty", models(nil, nil, nil), "", 400, ""},
		{"star", models(nil, nil, []string{"*"}), "openai/o3", 0, ""},
		{"star and unknown", models(nil, nil, []string{"*"}), "nope", 404, ""},
		{"exact", models(nil, nil, []string{"claude-haiku"}), "claude-haiku", 0, ""},
		{"not in the list", models(nil, nil, []string{"claude-haiku"}), "gpt-4o-mini", 403, "key/ci"},
		{"not in the list, not there either: the same answer", models(nil, nil, []string{"claude-haiku"}), "nope", 403, "key/ci"},
		{"wildcard", models(nil, nil, []string{"openai/*"}), "openai/o3", 0, ""},
		{"wildcard does not reach beyond", models(nil, nil, []string{"openai/*"}), "claude-haiku", 403, "key/ci"},
		{"group", models(nil, nil, []string{"cheap"}), "claude-haiku", 0, ""},
		{"group, other name", models(nil, nil, []string{"cheap"}), "openai/o3", 403, "key/ci"},
		{"group of a wildcard", models(nil, nil, []string{"open"}), "openai/o3", 0, ""},
		{"alias of an allowed model", models(nil, nil, []string{"gpt-4o-mini"}), "mini", 0, ""},
		{"alias of another", models(nil, nil, []string{"claude-haiku"}), "mini", 403, "key/ci"},
		{"an alias in a list grants nothing", models(nil, nil, []string{"mini"}), "mini", 403, "key/ci"},
		{"denied beside a wildcard", models(nil, []string{"openai/*", "!openai/o1-pro"}, nil), "openai/o1-pro", 403, "team/search"},
		{"denied first, granted later", models(nil, []string{"!openai/o1-pro", "openai/*"}, nil), "openai/o1-pro", 403, "team/search"},
		{"denied in another letter case", models(nil, []string{"openai/*", "!openai/o1-pro"}, nil), "openai/O1-Pro", 403, "team/search"},
		{"denied wildcard in another letter case", models(nil, []string{"*", "!openai/o1*"}, nil), "OpenAI/O1-x", 403, "team/search"},
		{"denied wildcard beats an exact grant", models(nil, []string{"openai/o3", "!openai/*"}, nil), "openai/o3", 403, "team/search"},
		{"denied group", models(nil, []string{"*", "!cheap"}, nil), "claude-haiku", 403, "team/search"},
		{"denied beside a group", models(nil, []string{"cheap", "!claude-haiku"}, nil), "claude-haiku", 403, "team/search"},
		{"only denials allow the rest", models(nil, []string{"!openai/*"}, nil), "claude-haiku", 0, ""},
		{"only denials deny", models(nil, []string{"!openai/*"}, nil), "openai/o3", 403, "team/search"},
		{"all denied", models(nil, []string{"!*"}, nil), "claude-haiku", 403, "team/search"},
		{"team narrows org", models([]string{"*"}, []string{"cheap"}, nil), "openai/o3", 403, "team/search"},
		{"key cannot widen team", models(nil, []string{"cheap"}, []string{"*"}), "openai/o3", 403, "team/search"},
		{"org cannot be widened", models([]string{"claude-haiku"}, []string{"*"}, []string{"*"}), "gpt-4o-mini", 403, "org/acme"},
		{"all three allow", models([]string{"*"}, []string{"cheap", "openai/*"}, []string{"gpt-4o-mini"}), "gpt-4o-mini", 0, ""},
		{"an org's denial holds for a key's own list", models([]string{"!openai/o3"}, nil, []string{"openai/o3"}), "openai/o3", 403, "org/acme"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, refused := tb.Resolve(tt.access, tt.asked)
			if tt.status == 0 {
				if refused != nil {
					t.Errorf("refused: %v", refused)
				}
				return
			}
			if refused == nil {
				t.Fatalf("allowed as %q", got.Name)
			}
			scope := ""
			if refused.ScopeKind != "" {
				scope = refused.ScopeKind + "/" + refused.ScopeID
			}
			if refused.Status(0) != tt.status || scope != tt.scope || refused.Param != "model" {
				t.Errorf("status %d by %q of %q, want %d by %q of \"model\"", refused.Status(0), scope, refused.Param, tt.status, tt.scope)
			}
			if len(refused.Message) > 500 {
				t.Errorf("message of %d bytes", len(refused.Message))
			}
		})
	}
}

func TestDenialDoesNotTellWhetherAModelExists(t *testing.T) {
	t.Parallel()
	tb := table(t, sample())
	access := models(nil, nil, []string{"claude-haiku"})
	_, there := tb.Resolve(access, "two words")
	_, nowhere := tb.Resolve(access, "six words")
	if there == nil || nowhere == nil {
		t.Fatal("allowed")
	}
	there.Message = strings.Replace(there.Message, "two", "six", 1)
	if diff := cmp.Diff(there, nowhere); diff != "" {
		t.Errorf("the two differ:\n%s", diff)
	}
}

func TestAlternatives(t *testing.T) {
	t.Parallel()
	cfg := sample()
	cfg.Models = append(cfg.Models[:2], cfg.Models[3:]...)
	tb := table(t, cfg)
	for _, tt := range []struct {
		name   string
		access Access
		want   []string
	}{
		{"all", Access{}, []string{"openai/gpt-4.1-nano", "claude-haiku"}},
		{"only those allowed", models(nil, []string{"cheap"}, nil), []string{"claude-haiku"}},
		{"none allowed", models(nil, nil, []string{"gpt-4o-mini"}), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tgt, refused := tb.Resolve(tt.access, "mini")
			if refused != nil {
				t.Fatal(refused)
			}
			var got []string
			for _, f := range tb.Alternatives(nil, tgt, tgt.Model.Fallbacks) {
				if f.Asked != "mini" {
					t.Errorf("%s was asked as %q", f.Name, f.Asked)
				}
				got = append(got, f.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("alternatives (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVisible(t *testing.T) {
	t.Parallel()
	tb := table(t, sample())
	for _, tt := range []struct {
		name   string
		access Access
		want   []string
	}{
		{"everything, wildcards only by the names spelled out", Access{},
			[]string{"claude-haiku", "gpt-4o-mini", "mini", "nowhere", "openai/gpt-4.1", "openai/gpt-4.1-nano", "two words"}},
		{"a list with a name that a wildcard serves", models(nil, nil, []string{"openai/o3", "mini"}), []string{"openai/o3"}},
		{"a group", models(nil, []string{"cheap"}, nil), []string{"claude-haiku", "gpt-4o-mini", "mini"}},
		{"denied names are not shown", models(nil, []string{"*", "!cheap", "!nowhere", "!two words"}, nil), []string{"openai/gpt-4.1", "openai/gpt-4.1-nano"}},
		{"own aliases, of allowed models only", Access{Team: &config.Access{
			Models: []string{"claude-haiku"}, Aliases: map[string]string{"fast": "claude-haiku", "big": "openai/gpt-4.1"}}},
			[]string{"claude-haiku", "fast"}},
		{"an alias that hides a model", Access{Key: &config.Access{
			Models: []string{"claude-haiku"}, Aliases: map[string]string{"claude-haiku": "openai/o3"}}}, []string{}},
		{"nothing", models(nil, nil, []string{"!*"}), []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tb.Visible(tt.access)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("visible (-want +got):\n%s", diff)
			}
			for _, name := range got {
				if _, refused := tb.Resolve(tt.access, name); refused != nil {
					t.Errorf("%q is listed and refused: %v", name, refused)
				}
			}
		})
	}
}

func TestEndpointAllowed(t *testing.T) {
	t.Parallel()
	endpoints := func(org, team, key []string) Access {
		return Access{Org: &config.Access{Endpoints: org}, Team: &config.Access{Endpoints: team}, Key: &config.Access{Endpoints: key},
			OrgID: "acme", TeamID: "search", KeyID: "ci"}
	}
	for _, tt := range []struct {
		name   string
		access Access
		scope  string // that refuses
	}{
		{"no levels", Access{}, ""},
		{"no lists", endpoints(nil, nil, nil), ""},
		{"listed", endpoints(nil, []string{"chat"}, nil), ""},
		{"not listed", endpoints(nil, []string{"embeddings"}, nil), "team/search"},
		{"a key cannot widen", endpoints([]string{"embeddings"}, nil, []string{"chat"}), "org/acme"},
		{"a key narrows", endpoints([]string{"chat"}, nil, []string{"embeddings"}), "key/ci"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			refused := EndpointAllowed(tt.access, "chat")
			if tt.scope == "" {
				if refused != nil {
					t.Errorf("refused: %v", refused)
				}
				return
			}
			if refused == nil || refused.ScopeKind+"/"+refused.ScopeID != tt.scope || refused.Status(0) != http.StatusForbidden {
				t.Errorf("refusal %+v, want 403 by %s", refused, tt.scope)
			}
			if refused != nil && refused.Reason != refusal.EndpointDenied {
				t.Errorf("reason %s", refused.Reason)
			}
		})
	}
}

// FuzzResolve: a name that a list denies never resolves, in whatever spelling; a resolved name is served by an entry
// that matches it.
func FuzzResolve(f *testing.F) {
	f.Add("openai/o1-pro")
	f.Add("OPENAI/o1-PRO")
	f.Add("mini")
	f.Add("openai/o1-pro\x00")
	cfg := sample()
	tb, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	access := models(nil, []string{"*", "!openai/o1-pro", "!cheap"}, nil)
	f.Fuzz(func(t *testing.T, name string) {
		tgt, refused := tb.Resolve(access, name)
		if (refused == nil) == (tgt.Model == nil) {
			t.Fatalf("target %v and refusal %v", tgt, refused)
		}
		if refused != nil {
			return
		}
		if strings.EqualFold(strings.TrimSpace(tgt.Name), "openai/o1-pro") || tgt.Name == "gpt-4o-mini" || tgt.Name == "claude-haiku" {
			t.Fatalf("%q resolves to %q, which is denied", name, tgt.Name)
		}
		if !matches(tgt.Model.Name, tgt.Name) || !strings.HasSuffix(tgt.Name, tgt.Rest) || tgt.Rest == "" {
			t.Fatalf("%q: name %q, rest %q, served by %q", name, tgt.Name, tgt.Rest, tgt.Model.Name)
		}
	})
}
