package routing

import (
	"slices"
	"strings"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// Access is what a caller's org, team and key say about models, endpoints and regions. A nil level says nothing. The
// ids are for refusals.
type Access struct {
	Org, Team, Key       *config.Access
	OrgID, TeamID, KeyID string
}

// level is one of the three, under its name.
type level struct {
	kind, id string
	access   *config.Access
}

// levels are those that say something, from the widest to the narrowest.
func (a Access) levels() [3]level {
	return [3]level{{"org", a.OrgID, a.Org}, {"team", a.TeamID, a.Team}, {"key", a.KeyID, a.Key}}
}

// EndpointAllowed refuses an endpoint that a list of org, team or key leaves out. The name is as configuration lists
// it ("chat"); an empty list allows all.
func EndpointAllowed(k Access, name string) *refusal.Refusal {
	for _, l := range k.levels() {
		if l.access == nil || len(l.access.Endpoints) == 0 || slices.Contains(l.access.Endpoints, name) {
			continue
		}
		return &refusal.Refusal{
			Reason: refusal.EndpointDenied, ScopeKind: l.kind, ScopeID: l.id,
			Message: "the " + l.kind + " " + refusal.Quote(l.id) + " may not use the endpoint " + refusal.Quote(name),
		}
	}
	return nil
}

// RegionAllowed reports whether every region rule of the caller holds for a deployment's region. A deployment without
// a region is in none.
func (a Access) RegionAllowed(region string) bool {
	for _, l := range a.levels() {
		if l.access != nil && len(l.access.Regions) != 0 && !slices.Contains(l.access.Regions, region) {
			return false
		}
	}
	return true
}

// Regions are the regions that every rule allows, sorted. ruled is false when there is no rule, and then any region
// serves, or none at all.
func (a Access) Regions() (regions []string, ruled bool) {
	for _, l := range a.levels() {
		if l.access == nil || len(l.access.Regions) == 0 {
			continue
		}
		if !ruled {
			regions, ruled = slices.Clone(l.access.Regions), true
			continue
		}
		regions = slices.DeleteFunc(regions, func(r string) bool { return !slices.Contains(l.access.Regions, r) })
	}
	slices.Sort(regions)
	return slices.Compact(regions), ruled
}

// denier is the narrowest thing to say about a name that is not allowed: the level whose list refuses it.
func (t *Table) denier(k Access, name string) (level, bool) {
	for _, l := range k.levels() {
		if l.access != nil && !t.listAllows(l.access.Models, name) {
			return l, true
		}
	}
	return level{}, false
}

// listAllows judges a name by one list.
func (t *Table) listAllows(list []string, name string) bool {
	granted, grants := false, false
	for _, entry := range list {
		if denied, is := strings.CutPrefix(entry, "!"); is {
			if t.entryMatches(denied, name, matchesFold) {
				return false
			}
			continue
		}
		grants = true
		granted = granted || t.entryMatches(entry, name, matches)
	}
	return granted || !grants
}

// entryMatches compares a name with an entry of a list, through an access group if it is one.
func (t *Table) entryMatches(entry, name string, match func(pattern, name string) bool) bool {
	if match(entry, name) {
		return true
	}
	for _, member := range t.groups[entry] {
		if match(member, name) {
			return true
		}
	}
	return false
}

// matches reports whether a name is the pattern or, when that ends in "*", begins with what stands before it.
func matches(pattern, name string) bool {
	if prefix, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// matchesFold is matches in any letter case.
func matchesFold(pattern, name string) bool {
	if prefix, wild := strings.CutSuffix(pattern, "*"); wild {
		return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
	}
	return strings.EqualFold(pattern, name)
}
