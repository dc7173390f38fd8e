package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

func hashed(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func sample() *config.Config {
	return &config.Config{
		Orgs:        []config.Org{{ID: "acme"}},
		Teams:       []config.Team{{ID: "search", Org: "acme"}, {ID: "solo"}, {ID: "acme"}},
		Users:       []config.User{{ID: "ada"}},
		Projects:    []config.Project{{ID: "rag", Team: "search"}},
		TeamMembers: []config.TeamMember{{Team: "search", User: "ada"}},
		Keys: []config.Key{
			{ID: "ci", SecretSHA256: hashed("a"), Team: "search", User: "ada", Project: "rag"},
			{ID: "solo-ci", SecretSHA256: hashed("b"), Team: "solo", User: "nobody"},
			{ID: "loner", SecretSHA256: hashed("c")},
			{ID: "of org", SecretSHA256: hashed("d"), Org: "acme"},
			{ID: "of team acme", SecretSHA256: hashed("e"), Team: "acme"},
			{ID: "missing secret"},
			{ID: "odd}{id", SecretSHA256: hashed("f")},
		},
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	d, err := NewDirectory(sample())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		secret string
		id     string
		tenant Tenant
	}{
		{"org through its team", "a", "ci", Tenant{"org", "acme"}},
		{"team without an org", "b", "solo-ci", Tenant{"team", "solo"}},
		{"neither", "c", "loner", Tenant{"key", "loner"}},
		{"org without a team", "d", "of org", Tenant{"org", "acme"}},
		{"a team named like the org", "e", "of team acme", Tenant{"team", "acme"}},
		{"an id with odd bytes", "f", "odd}{id", Tenant{"key", "odd}{id"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k, ok := d.Lookup(sha256.Sum256([]byte(tt.secret)))
			if !ok {
				t.Fatal("not found")
			}
			if k.ID != tt.id || k.Tenant() != tt.tenant {
				t.Errorf("key %q of %v, want %q of %v", k.ID, k.Tenant(), tt.id, tt.tenant)
			}
		})
	}
	k, _ := d.Lookup(sha256.Sum256([]byte("a")))
	if k.Team == nil || k.Org == nil || k.User == nil || k.Project == nil || k.Member == nil {
		t.Errorf("rows missing: %+v", k)
	}
	k, _ = d.Lookup(sha256.Sum256([]byte("b")))
	if k.User != nil || k.Member != nil || k.Project != nil {
		t.Errorf("rows from nowhere: %+v", k)
	}
	for _, secret := range []string{"A", "", "missing secret"} {
		if k, ok := d.Lookup(sha256.Sum256([]byte(secret))); ok {
			t.Errorf("secret %q finds key %q", secret, k.ID)
		}
	}
}

func TestNewDirectoryErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*config.Config)
		want   string
	}{
		{"two keys of one id", func(c *config.Config) { c.Keys[1].ID = "ci" }, `keys: id "ci" is used twice`},
		{"two keys of one secret", func(c *config.Config) { c.Keys[1].SecretSHA256 = hashed("a") }, `keys[solo-ci].secret: is also the secret of key "ci"`},
		{"hash too short", func(c *config.Config) { c.Keys[0].SecretSHA256 = "abcd" }, `keys[ci].secret_sha256: must be 64 hexadecimal digits`},
		{"hash not hexadecimal", func(c *config.Config) { c.Keys[0].SecretSHA256 = strings.Repeat("g", 64) }, `keys[ci].secret_sha256: must be 64 hexadecimal digits`},
		{"no such team", func(c *config.Config) { c.Keys[0].Team = "x" }, `keys[ci].team: there is no team "x"`},
		{"no such org", func(c *config.Config) { c.Keys[2].Org = "x" }, `keys[loner]: there is no org "x"`},
		{"the team's org is not there", func(c *config.Config) { c.Orgs = nil }, `keys[ci]: there is no org "acme"`},
		{"org against the team's", func(c *config.Config) { c.Keys[1].Org = "acme" }, `keys[solo-ci].org: is "acme", but team "solo" has the org ""`},
		{"no such project", func(c *config.Config) { c.Keys[0].Project = "x" }, `keys[ci].project: there is no project "x"`},
		{"a project of another team", func(c *config.Config) { c.Keys[1].Project = "rag" }, `keys[solo-ci].project: project "rag" belongs to team "search", not to "solo"`},
		{"a team twice", func(c *config.Config) { c.Teams[1].ID = "search" }, `teams: id search is used twice`},
		{"a member twice", func(c *config.Config) { c.TeamMembers = append(c.TeamMembers, c.TeamMembers[0]) }, `team_members: id [search ada] is used twice`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := sample()
			tt.change(cfg)
			_, err := NewDirectory(cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNewKeyNeedsItsRow(t *testing.T) {
	t.Parallel()
	if k, err := NewKey(Key{}); err == nil {
		t.Errorf("NewKey of nothing is %v", k)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		key    config.Key
		team   *config.Team
		reason refusal.Reason // empty: passes
		scope  string
	}{
		{"good", config.Key{ID: "k"}, &config.Team{ID: "t"}, "", ""},
		{"no team", config.Key{ID: "k"}, nil, "", ""},
		{"blocked", config.Key{ID: "k", Blocked: true}, nil, refusal.Blocked, "key"},
		{"team blocked", config.Key{ID: "k"}, &config.Team{ID: "t", Blocked: true}, refusal.Blocked, "team"},
		{"a nanosecond before expiry", config.Key{ID: "k", Expires: now.Add(1)}, nil, "", ""},
		{"at expiry", config.Key{ID: "k", Expires: now}, nil, refusal.Expired, "key"},
		{"after expiry", config.Key{ID: "k", Expires: now.Add(-time.Hour)}, nil, refusal.Expired, "key"},
		{"blocked and expired is blocked", config.Key{ID: "k", Blocked: true, Expires: now}, nil, refusal.Blocked, "key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k, err := NewKey(Key{Key: &tt.key, Team: tt.team})
			if err != nil {
				t.Fatal(err)
			}
			got := k.Check(now)
			if tt.reason == "" {
				if got != nil {
					t.Errorf("refused: %v", got)
				}
				return
			}
			if got == nil || got.Reason != tt.reason || got.ScopeKind != tt.scope || got.Status(0) != 401 {
				t.Errorf("refusal %+v, want %s by the %s, 401", got, tt.reason, tt.scope)
			}
		})
	}
}
