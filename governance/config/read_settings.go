package config

import (
	"crypto/tls"
	"strconv"
	"strings"
	"time"
)

const (
	day         = 24 * time.Hour
	minCacheTTL = time.Second
	maxCacheTTL = 3650 * day
)

// settings reads what only the main file can have: everything but rows.
func (d *decoder) settings(s *section) {
	c := d.cfg
	s.zone(&c.Timezone)
	inside(s, "listen", d.listen)
	inside(s, "tls", d.tls)
	inside(s, "gateway", func(g *section) { g.text("address", &c.Gateway.Address, addressRule) })
	s.duration("drain", &c.Drain, 0, time.Hour)
	inside(s, "redis", d.redis)
	inside(s, "postgres", d.postgres)
	inside(s, "journal", d.journal)
	inside(s, "ledger", func(l *section) {
		l.duration("retention", &c.Ledger.Retention, day, 36500*day)
		l.count("stream_max", &c.Ledger.StreamMax, 1, maxCount)
		oneOf(l, "end_user", &c.Ledger.EndUser, "plain", "hash", "drop")
	})
	inside(s, "auth", d.auth)
	inside(s, "identity", func(i *section) {
		c.Identity.EndUser = i.texts("end_user", sourceRule)
		c.Identity.Tags = i.texts("tags", sourceRule)
	})
	inside(s, "admin", d.admin)
	s.enforce(&c.Enforce)
	if n := s.get("limits"); n != nil {
		d.limits(n, &c.Limits)
	}
	oneOf(s, "routing", &c.Routing, "tollgate", "envoy")
	inside(s, "endpoints", d.endpoints)
	inside(s, "price_map", d.priceMap)
	inside(s, "defaults", d.defaults)
	inside(s, "cache", d.cache)
	inside(s, "alerts", d.alerts)
	inside(s, "errors", func(e *section) {
		status := strconv.Itoa(c.Errors.BudgetStatus)
		oneOf(e, "budget_status", &status, "429", "402", "403", "422", "400")
		c.Errors.BudgetStatus, _ = strconv.Atoi(status) // one of the five
	})
	inside(s, "log", func(l *section) {
		oneOf(l, "level", &c.Log.Level, "debug", "info", "warn", "error")
		oneOf(l, "format", &c.Log.Format, "json", "text")
	})
	inside(s, "debug", func(b *section) { b.boolean("trips_header", &c.Debug.TripsHeader) })
	inside(s, "tracing", func(t *section) {
		c.Tracing = &Tracing{}
		if t.require("otlp") != nil {
			t.url("otlp", &c.Tracing.OTLP, otlpRule)
		}
	})
}

// version checks the version of the format, in every file that names one.
func (s *section) version() {
	version := int64(1)
	s.count("version", &version, 0, maxCount)
	if version != 1 {
		s.d.fail(s.n.get("version"), "must be 1, the only version there is")
	}
}

// inside reads a mapping under a key, when the key is there.
func inside(s *section, name string, read func(*section)) {
	if n := s.get(name); n != nil {
		inner := s.d.section(n)
		read(inner)
		inner.done()
	}
}

func (d *decoder) listen(s *section) {
	l := &d.cfg.Listen
	addresses := []struct {
		name string
		into *string
	}{{"extproc", &l.ExtProc}, {"admin", &l.Admin}, {"health", &l.Health}, {"xds", &l.XDS}}
	for _, a := range addresses {
		s.text(a.name, a.into, addressRule)
	}
	// Two listeners on one address would start or fail by chance. Port 0 is a fresh port each time.
	owner := make(map[string]string)
	for _, a := range addresses {
		if other := owner[*a.into]; other != "" && !strings.HasSuffix(*a.into, ":0") {
			d.fail(s.n, "%s and %s have the same address %s", other, a.name, *a.into)
		}
		if *a.into != "" {
			owner[*a.into] = a.name
		}
	}
}

func (d *decoder) tls(s *section) {
	t := &TLS{}
	if s.require("cert") != nil {
		s.pem("cert", &t.Cert, "CERTIFICATE")
	}
	if s.require("key") != nil {
		s.pem("key", &t.Key, "PRIVATE KEY")
	}
	s.pem("client_ca", &t.ClientCA, "CERTIFICATE")
	if t.Cert != "" && t.Key != "" {
		if _, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key)); err != nil {
			d.fail(s.n, "cert and key do not fit: %v", err)
		}
	}
	d.cfg.TLS = t
}

func (d *decoder) endpoints(s *section) {
	e := &d.cfg.Endpoints
	e.Pass = s.texts("pass", pathRule)
	n := s.get("realtime")
	switch {
	case n == nil:
	case n.kind == mappingNode:
		e.Realtime = true
		inner := d.section(n)
		if inner.require("max_session") != nil {
			inner.duration("max_session", &e.MaxSession, time.Second, day)
		}
		inner.done()
	default:
		v, ok := convert(d, n, parseBool)
		if ok && v {
			d.fail(n, "needs {max_session: 30m}: a session without an end could spend without one")
		}
	}
}

func (d *decoder) priceMap(s *section) {
	p := &PriceMap{Format: "litellm"}
	if n := s.require("file"); n != nil {
		if name, ok := d.ruled(n, textRule); ok {
			p.File = n.path(name)
			// package price reads the rows; here the file only has to be there, and Watch sees it change.
			_, _ = d.read(n, p.File)
		}
	}
	oneOf(s, "format", &p.Format, "litellm")
	d.cfg.PriceMap = p
}

func (d *decoder) defaults(s *section) {
	f := &d.cfg.Defaults
	s.count("output_tokens", &f.OutputTokens, 1, maxCount)
	s.boolean("enforce_output_tokens", &f.EnforceOutputTokens)
	oneOf(s, "unpriced", &f.Unpriced, "deny_budgeted", "deny", "allow")
	s.bytes("max_body", &f.MaxBody, 1<<10, 1<<30)
	for _, row := range []struct {
		name string
		into **Scope
	}{{"end_user", &f.EndUser}, {"key", &f.Key}, {"user", &f.User}, {"team_member", &f.TeamMember}} {
		inside(s, row.name, func(inner *section) {
			*row.into = &Scope{}
			d.scope(inner, *row.into)
		})
	}
}

func (d *decoder) cache(s *section) {
	c := defaultCache()
	s.duration("ttl", &c.TTL, minCacheTTL, maxCacheTTL)
	oneOf(s, "scope", &c.Scope, cacheScopes...)
	s.bytes("max_entry", &c.MaxEntry, 1<<10, 512<<20)
	s.boolean("merge_misses", &c.MergeMisses)
	s.boolean("allow_cross_tenant", &c.AllowCrossTenant)
	if c.Scope == "global" && !c.AllowCrossTenant {
		d.fail(s.n.get("scope"), "global needs cache.allow_cross_tenant: true, for tenants then see each other's answers")
	}
	d.cfg.Cache = c
}

var cacheScopes = []string{"key", "team", "org", "global"}

func (d *decoder) alerts(s *section) {
	for _, item := range s.items("webhooks") {
		w := Webhook{Format: "json"}
		inner := d.section(item)
		if inner.require("url") != nil {
			inner.url("url", &w.URL, webhookRule)
		}
		oneOf(inner, "format", &w.Format, "json", "slack")
		inner.secret("secret", &w.Secret)
		inner.done()
		d.cfg.Alerts.Webhooks = append(d.cfg.Alerts.Webhooks, w)
	}
}
