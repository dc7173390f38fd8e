package identity

import (
	"errors"
	"fmt"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// Key is a virtual key together with the rows it belongs to. A row that it does not have is nil; a user or a membership
// without a row of its own is nil too, and the configuration's defaults stand for it.
//
// A Key is shared between requests and must not be changed.
type Key struct {
	*config.Key
	Team    *config.Team
	Org     *config.Org
	Project *config.Project
	User    *config.User
	Member  *config.TeamMember

	tenant Tenant
}

// Tenant is who a key belongs to: its org, else its team, else the key itself.
type Tenant struct {
	Kind string // "org", "team" or "key"
	ID   string
}

// Tenant is the key's tenant.
func (k *Key) Tenant() Tenant { return k.tenant }

// NewKey makes a key from the rows in k, whichever store they come from. The error names the field that contradicts
// another.
func NewKey(k Key) (*Key, error) {
	switch {
	case k.Key == nil:
		return nil, errors.New("a key needs its row")
	case k.Team != nil && k.Key.Org != "" && k.Key.Org != k.Team.Org:
		return nil, fmt.Errorf("keys[%s].org: is %q, but team %q has the org %q", k.ID, k.Key.Org, k.Team.ID, k.Team.Org)
	case k.Project != nil && k.Project.Team != k.Key.Team:
		return nil, fmt.Errorf("keys[%s].project: project %q belongs to team %q, not to %q", k.ID, k.Project.ID, k.Project.Team, k.Key.Team)
	}
	switch {
	case k.Org != nil:
		k.tenant = Tenant{"org", k.Org.ID}
	case k.Team != nil:
		k.tenant = Tenant{"team", k.Team.ID}
	default:
		k.tenant = Tenant{"key", k.ID}
	}
	return &k, nil
}

// Check refuses a key that may not be used now: blocked, of a blocked team, or expired. A key is good until the
// instant it expires at, and not at it.
func (k *Key) Check(now time.Time) *refusal.Refusal {
	switch {
	case k.Blocked:
		return k.refuse(refusal.Blocked, "the API key "+refusal.Quote(k.ID)+" is blocked")
	case k.Team != nil && k.Team.Blocked:
		return &refusal.Refusal{
			Reason: refusal.Blocked, ScopeKind: "team", ScopeID: k.Team.ID,
			Message: "the team " + refusal.Quote(k.Team.ID) + " of the API key is blocked",
		}
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return k.refuse(refusal.Expired, "the API key "+refusal.Quote(k.ID)+" expired at "+k.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

func (k *Key) refuse(reason refusal.Reason, message string) *refusal.Refusal {
	return &refusal.Refusal{Reason: reason, ScopeKind: "key", ScopeID: k.ID, Message: message}
}
