package limit

import (
	"strings"
	"testing"
)

func TestHome(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, tt := range []struct{ name, kind, id, want string }{
		{"plain", "team", "search-1_a.b", "t:search-1_a.b"},
		{"org of the same id", "org", "search-1_a.b", "o:search-1_a.b"},
		{"wildcard", "model", "openai/*", ""},
		{"closing brace", "key", "a}b", ""},
		{"opening brace", "key", "a{b", ""},
		{"empty", "key", "", ""},
		{"long", "key", strings.Repeat("a", 65), ""},
		{"not ASCII", "key", "\u00e9", ""},
	} {
		got := Home(tt.kind, tt.id)
		if tt.want != "" && got != tt.want || tt.want == "" && (len(got) != 2+33 || strings.ContainsAny(got, "{}")) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if other, twice := seen[got]; twice {
			t.Errorf("%s and %s share %q", tt.name, other, got)
		}
		seen[got] = tt.name
	}
}
