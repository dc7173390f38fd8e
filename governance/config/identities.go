package config

import "time"

// Scope is what every scope can carry beside its id.
type Scope struct {
	Limits   Limits
	Enforce  Enforce
	Timezone *time.Location // nil: the file's
}

// Access is what orgs, teams and keys say about models.
type Access struct {
	Models    []string // empty: what the parent allows; "*", exact, wildcard, access group, "!" denies
	Aliases   map[string]string
	Endpoints []string // empty: all
	Regions   []string // empty: all
}

// CacheRule overrides the cache for a team or key.
type CacheRule struct {
	Scope string
	TTL   time.Duration
}

// Org is an organisation.
type Org struct {
	ID string
	Scope
	Access
}

// Team is a team.
type Team struct {
	ID, Org string
	Scope
	Access
	AllowTags   []string
	OnExhausted []string
	Cache       *CacheRule
	Blocked     bool
}

// User is a person or service.
type User struct {
	ID string
	Scope
}

// Project belongs to a team.
type Project struct {
	ID, Team string
	Scope
}

// TeamMember is a user in a team.
type TeamMember struct {
	Team, User string
	Scope
}

// EndUser is somebody behind the client.
type EndUser struct {
	ID, Org string
	Scope
}

// Tag is a label with limits.
type Tag struct {
	ID string
	Scope
}

// Key is a virtual key.
type Key struct {
	ID           string
	SecretSHA256 string // lower-case hex of the SHA-256 of the whole secret; "" when the secret is missing (static check)
	Team         string
	User         string
	Org          string
	Project      string
	Scope
	Access
	Expires time.Time // zero: never
	Blocked bool
	Tags    []string
	Cache   *CacheRule
}
