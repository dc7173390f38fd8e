package config

import (
	"slices"
	"strings"
)

func (d *decoder) auth(s *section) {
	a := &d.cfg.Auth
	oneOf(s, "mode", &a.Mode, "required", "optional")
	a.KeyHeaders = s.texts("key_headers", headerRule)
	claims := []string{"team", "user", "org", "project", "end_user"}
	for _, item := range s.items("jwt") {
		var j JWT
		inner := d.section(item)
		for _, u := range []struct {
			name string
			into *string
		}{{"issuer", &j.Issuer}, {"jwks", &j.JWKS}} {
			if inner.require(u.name) != nil {
				inner.url(u.name, u.into, upstreamRule)
			}
		}
		if inner.require("audience") != nil {
			inner.text("audience", &j.Audience, textRule)
		}
		for _, e := range inner.pairs("claims") {
			if !slices.Contains(claims, e.name) {
				d.fail(e.value, "unknown key; claims give %s%s", strings.Join(claims, ", "), nearestKey(e.name, claims))
				continue
			}
			if claim, ok := d.ruled(e.value, textRule); ok {
				if j.Claims == nil {
					j.Claims = make(map[string]string)
				}
				j.Claims[e.name] = claim
			}
		}
		inner.done()
		a.JWT = append(a.JWT, j)
	}
}

func (d *decoder) admin(s *section) {
	for _, item := range s.items("tokens") {
		var t AdminToken
		inner := d.section(item)
		if n := inner.require("name"); n != nil {
			inner.text("name", &t.Name, idRule)
			d.unique("admin token", t.Name, n)
		}
		if inner.require("token") != nil {
			inner.secret("token", &t.Token)
		}
		if inner.require("role") != nil {
			oneOf(inner, "role", &t.Role, "admin", "finops", "viewer", "team_admin")
		}
		t.Teams = inner.references("teams", "team")
		if (t.Role == "team_admin") != (len(t.Teams) > 0) && t.Role != "" {
			d.fail(item, "teams belong to role team_admin, which needs at least one")
		}
		inner.done()
		d.cfg.Admin.Tokens = append(d.cfg.Admin.Tokens, t)
	}
}
