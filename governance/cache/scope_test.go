package cache

import (
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

func TestRuleFor(t *testing.T) {
	t.Parallel()
	file := &config.Cache{TTL: time.Minute, Scope: "team", AllowCrossTenant: true}
	for _, tt := range []struct {
		name      string
		file      *config.Cache
		team, key *config.CacheRule
		want      Rule
	}{
		{"off", nil, &config.CacheRule{Scope: "team", TTL: time.Hour}, nil, Rule{}},
		{"file", file, nil, nil, Rule{"team", time.Minute, true}},
		{"team over file", file, &config.CacheRule{Scope: "org", TTL: time.Hour}, nil, Rule{"org", time.Hour, true}},
		{"key over team", file, &config.CacheRule{Scope: "org", TTL: time.Hour}, &config.CacheRule{Scope: "key"}, Rule{"key", time.Hour, true}},
		{"only a lifetime", file, nil, &config.CacheRule{TTL: time.Second}, Rule{"team", time.Second, true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := RuleFor(tt.file, tt.team, tt.key); got != tt.want {
				t.Errorf("rule %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestScopeID(t *testing.T) {
	t.Parallel()
	full := IDs{Key: "k", Team: "t", Org: "o"}
	for _, tt := range []struct {
		name string
		rule Rule
		ids  IDs
		want string
	}{
		{"key", Rule{Scope: "key"}, full, "key:k"},
		{"team", Rule{Scope: "team"}, full, "team:t"},
		{"org", Rule{Scope: "org"}, full, "org:o"},
		{"global", Rule{Scope: "global", CrossTenant: true}, full, "global"},
		{"global without leave", Rule{Scope: "global"}, full, "key:k"},
		{"no team falls back to the key", Rule{Scope: "team"}, IDs{Key: "k", Org: "o"}, "key:k"},
		{"no org falls back to the key", Rule{Scope: "org"}, IDs{Key: "k", Team: "t"}, "key:k"},
		{"no scope", Rule{}, full, "key:k"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.rule.ScopeID(tt.ids); got != tt.want {
				t.Errorf("scope %q, want %q", got, tt.want)
			}
		})
	}
}
