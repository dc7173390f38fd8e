package routing

import (
	"strings"
	"testing"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

func TestNewErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		models []config.Model
		groups map[string][]string
		want   string
	}{
		{"no name", []config.Model{{}}, nil, `models[0].name: must not be empty`},
		{"star inside", []config.Model{{Name: "a*b"}}, nil, `models[0].name: "a*b" may have "*" only at its end`},
		{"twice", []config.Model{{Name: "a"}, {Name: "a"}}, nil, `models[1].name: "a" is used twice`},
		{"wildcard twice", []config.Model{{Name: "a/*"}, {Name: "a/*"}}, nil, `models[1].name: "a/*" is used twice`},
		{"alias of another model's name", []config.Model{{Name: "a", Aliases: []string{"b"}}, {Name: "b"}}, nil, `models[a].aliases: "b" is used twice`},
		{"alias twice", []config.Model{{Name: "a", Aliases: []string{"x"}}, {Name: "b", Aliases: []string{"x"}}}, nil, `models[b].aliases: "x" is used twice`},
		{"empty alias", []config.Model{{Name: "a", Aliases: []string{""}}}, nil, `models[a].aliases: "" must be a plain name`},
		{"wildcard alias", []config.Model{{Name: "a", Aliases: []string{"x*"}}}, nil, `models[a].aliases: "x*" must be a plain name`},
		{"alias of a wildcard", []config.Model{{Name: "a/*", Aliases: []string{"x"}}}, nil, `models[a/*].aliases: a wildcard cannot have the alias "x"`},
		{"group named as a model", []config.Model{{Name: "a"}}, map[string][]string{"a": {"a"}}, `access_groups.a: is also the name of a model`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(&config.Config{Models: tt.models, AccessGroups: tt.groups})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
