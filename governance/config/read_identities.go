package config

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// identities reads orgs, teams, users, projects, team members, end users, tags and keys.
func (d *decoder) identities(s *section) {
	d.orgs(s)
	d.teams(s)
	for _, item := range s.items("users") {
		var u User
		inner := d.section(item)
		d.identifier(inner, "user", &u.ID, idRule)
		d.scope(inner, &u.Scope)
		inner.done()
		d.cfg.Users = append(d.cfg.Users, u)
	}
	for _, item := range s.items("projects") {
		var p Project
		inner := d.section(item)
		d.identifier(inner, "project", &p.ID, idRule)
		if inner.require("team") != nil {
			inner.reference("team", "team", &p.Team)
		}
		d.scope(inner, &p.Scope)
		inner.done()
		if p.ID != "" {
			put(&d.teamOfProject, p.ID, p.Team)
		}
		d.cfg.Projects = append(d.cfg.Projects, p)
	}
	d.teamMembers(s)
	for _, item := range s.items("end_users") {
		var u EndUser
		inner := d.section(item)
		inner.reference("org", "org", &u.Org)
		// End users are counted per tenant, so two orgs can have the same id.
		d.identifierIn(inner, "end user", u.Org, &u.ID, endUserRule)
		d.scope(inner, &u.Scope)
		inner.done()
		d.cfg.EndUsers = append(d.cfg.EndUsers, u)
	}
	for _, item := range s.items("tags") {
		var t Tag
		inner := d.section(item)
		d.identifier(inner, "tag", &t.ID, tagPatternRule)
		d.scope(inner, &t.Scope)
		inner.done()
		d.cfg.Tags = append(d.cfg.Tags, t)
	}
	d.keys(s)
}

func (d *decoder) orgs(s *section) {
	for _, item := range s.items("orgs") {
		var o Org
		inner := d.section(item)
		d.identifier(inner, "org", &o.ID, idRule)
		d.scope(inner, &o.Scope)
		d.access(inner, &o.Access)
		inner.done()
		d.cfg.Orgs = append(d.cfg.Orgs, o)
	}
}

func (d *decoder) teams(s *section) {
	for _, item := range s.items("teams") {
		var t Team
		inner := d.section(item)
		d.identifier(inner, "team", &t.ID, idRule)
		inner.reference("org", "org", &t.Org)
		d.scope(inner, &t.Scope)
		d.access(inner, &t.Access)
		t.AllowTags = inner.texts("allow_tags", tagPatternRule)
		t.OnExhausted = inner.modelList("on_exhausted", inFallback)
		t.Cache = d.cacheRule(inner)
		inner.boolean("blocked", &t.Blocked)
		inner.done()
		put(&d.orgOfTeam, t.ID, t.Org)
		d.cfg.Teams = append(d.cfg.Teams, t)
	}
}

func (d *decoder) teamMembers(s *section) {
	for _, item := range s.items("team_members") {
		var m TeamMember
		inner := d.section(item)
		if inner.require("team") != nil {
			inner.reference("team", "team", &m.Team)
		}
		if n := inner.require("user"); n != nil {
			m.User, _ = d.ruled(n, idRule)
		}
		if m.Team != "" && m.User != "" {
			at := *item
			at.text = m.Team + "/" + m.User
			d.unique("team member", at.text, &at)
		}
		d.scope(inner, &m.Scope)
		inner.done()
		d.cfg.TeamMembers = append(d.cfg.TeamMembers, m)
	}
}

func (d *decoder) keys(s *section) {
	for _, item := range s.items("keys") {
		var k Key
		inner := d.section(item)
		d.identifier(inner, "key", &k.ID, idRule)
		d.keySecret(inner, &k)
		inner.reference("team", "team", &k.Team)
		inner.reference("org", "org", &k.Org)
		inner.reference("project", "project", &k.Project)
		// A user without a row takes defaults.user, so any id will do.
		inner.text("user", &k.User, idRule)
		d.scope(inner, &k.Scope)
		d.access(inner, &k.Access)
		if n := inner.get("expires"); n != nil {
			k.Expires, _ = convert(d, n, parseTime)
		}
		inner.boolean("blocked", &k.Blocked)
		k.Tags = inner.texts("tags", tagRule)
		if len(k.Tags) > 10 {
			d.fail(inner.n.get("tags"), "must have at most 10 tags")
		}
		k.Cache = d.cacheRule(inner)
		inner.done()
		d.later = append(d.later, func() { d.checkTenant(item, k) })
		d.cfg.Keys = append(d.cfg.Keys, k)
	}
}

// keySecret reads the secret or its hash, exactly one of them. Only the hash is kept.
func (d *decoder) keySecret(s *section, k *Key) {
	secret, hash := s.get("secret"), s.get("secret_sha256")
	at := secret
	switch {
	case (secret == nil) == (hash == nil):
		d.fail(s.n, "needs exactly one of secret and secret_sha256")
		return
	case secret != nil:
		text, ok := d.secret(secret)
		if !ok {
			return
		}
		sum := sha256.Sum256([]byte(text))
		k.SecretSHA256 = hex.EncodeToString(sum[:])
	default:
		at = hash
		text, ok := d.sensitive(hash)
		if !ok {
			return
		}
		if wrong := hashRule(text); wrong != "" {
			d.fail(hash, "%s", wrong)
			return
		}
		k.SecretSHA256 = strings.ToLower(text)
	}
	first := d.seen["secret"][k.SecretSHA256]
	if first != nil {
		d.fail(at, "two keys with the same secret; the other is %s in %s:%d", strings.TrimSuffix(strings.TrimSuffix(first.key, ".secret"), ".secret_sha256"), first.file, first.line)
		return
	}
	d.unique("secret", k.SecretSHA256, at)
}

// checkTenant refuses a key whose team, project and org contradict each other: its counters would have two homes.
func (d *decoder) checkTenant(n *node, k Key) {
	if team, found := d.teamOfProject[k.Project]; found && team != k.Team {
		d.fail(n.get("project"), "project %q belongs to team %q, the key does not", k.Project, team)
	}
	if org := d.orgOfTeam[k.Team]; k.Team != "" && org != "" && k.Org != "" && org != k.Org {
		d.fail(n.get("org"), "team %q belongs to org %q, the key to another", k.Team, org)
	}
}

// identifier reads the required id of a row; the same id twice is an error, in one file or two.
func (d *decoder) identifier(s *section, kind string, into *string, check rule) {
	d.identifierIn(s, kind, "", into, check)
}

// identifierIn is identifier for ids that are unique only within an owner.
func (d *decoder) identifierIn(s *section, kind, owner string, into *string, check rule) {
	n := s.require("id")
	if n == nil {
		return
	}
	id, ok := d.ruled(n, check)
	if !ok {
		return
	}
	*into = id
	if owner != "" {
		id = owner + "\x00" + id
	}
	d.unique(kind, id, n)
}

// reference reads the id of a row of another kind, which must exist, here or in PostgreSQL.
func (s *section) reference(name, kind string, into *string) {
	if n := s.get(name); n != nil {
		if id, ok := s.d.ruled(n, idRule); ok {
			*into = id
			s.d.mustExist(n, kind, id)
		}
	}
}

// references is reference for a list.
func (s *section) references(name, kind string) []string {
	return s.eachText(name, idRule, func(item *node, id string) { s.d.mustExist(item, kind, id) })
}

func (d *decoder) mustExist(n *node, kind, id string) {
	d.later = append(d.later, func() {
		if d.known(kind, id) || d.cfg.Postgres != nil {
			return
		}
		d.fail(n, "%s is no %s of this configuration%s", n.quoted(), kind, didYouMean(id, d.ids(kind)))
	})
}

// cacheRule reads how a team or key uses the cache.
func (d *decoder) cacheRule(s *section) *CacheRule {
	n := s.get("cache")
	if n == nil {
		return nil
	}
	r := &CacheRule{}
	inner := d.section(n)
	oneOf(inner, "scope", &r.Scope, cacheScopes...)
	inner.duration("ttl", &r.TTL, minCacheTTL, maxCacheTTL)
	inner.done()
	d.later = append(d.later, func() {
		switch {
		case d.cfg.Cache == nil:
			d.warn(n, "has no effect while cache is off")
		case r.Scope == "global" && !d.cfg.Cache.AllowCrossTenant:
			d.fail(n.get("scope"), "global needs cache.allow_cross_tenant: true, for tenants then see each other's answers")
		}
	})
	return r
}
