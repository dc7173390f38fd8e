package cache

import (
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// Rule is what the configuration says about one key's answers.
type Rule struct {
	Scope string        // "key", "team", "org" or "global": who may share them
	TTL   time.Duration // how long they are fresh; 0: not cached
	// CrossTenant allows the scope "global".
	CrossTenant bool
}

// RuleFor joins the file's cache section with the rules of a key and its team: what the key says stands before what
// the team says, and that before the file. Without the file's section the cache is off, and the rule's TTL is 0.
func RuleFor(file *config.Cache, team, key *config.CacheRule) Rule {
	if file == nil {
		return Rule{}
	}
	r := Rule{Scope: file.Scope, TTL: file.TTL, CrossTenant: file.AllowCrossTenant}
	for _, over := range []*config.CacheRule{team, key} {
		if over == nil {
			continue
		}
		if over.Scope != "" {
			r.Scope = over.Scope
		}
		if over.TTL != 0 {
			r.TTL = over.TTL
		}
	}
	return r
}

// IDs are the ids of a key and of what it belongs to, "" where it does not.
type IDs struct {
	Key, Team, Org string
}

// ScopeID names whose answers a caller shares. A scope that the key lacks falls back to the key, and so does "global"
// without leave to cross tenants: at worst an answer is shared with nobody.
func (r Rule) ScopeID(ids IDs) string {
	switch {
	case r.Scope == "global" && r.CrossTenant:
		return "global"
	case r.Scope == "org" && ids.Org != "":
		return "org:" + ids.Org
	case r.Scope == "team" && ids.Team != "":
		return "team:" + ids.Team
	}
	return "key:" + ids.Key
}
