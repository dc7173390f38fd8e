package config

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Explain writes what the configuration means, for people: what listens, where counters live, what serves each model
// and at whose price, who may spend how much, then what is set without effect. It shows no secret, and the same
// configuration gives the same text.
func (c *Config) Explain(w io.Writer) error {
	e := &explainer{}
	e.line(0, "configuration %s", cmp.Or(c.File, "(none)"))
	e.listeners(c)
	e.store(c)
	e.models(c)
	e.identities(c)
	e.cache(c.Cache)
	e.tracing(c.Tracing)
	e.findings("set, and not acted on by this version", c.NotYet)
	e.findings("missing", c.Missing)
	e.findings("warnings", c.Warnings)
	_, err := io.WriteString(w, e.b.String())
	return err
}

type explainer struct{ b strings.Builder }

// line writes one line, indented by level.
func (e *explainer) line(level int, format string, args ...any) {
	e.b.WriteString(strings.Repeat("  ", level))
	fmt.Fprintf(&e.b, format, args...)
	e.b.WriteByte('\n')
}

// title begins a part.
func (e *explainer) title(format string, args ...any) {
	e.b.WriteByte('\n')
	e.line(0, format, args...)
}

func (e *explainer) listeners(c *Config) {
	transport := "plaintext"
	if c.TLS != nil {
		transport = "TLS"
		if c.TLS.ClientCA != "" {
			transport = "TLS with client certificates"
		}
	}
	e.title("listeners (%s)", transport)
	e.line(1, "extproc  %s", c.Listen.ExtProc)
	e.line(1, "admin    %s", c.Listen.Admin)
	e.line(1, "health   %s", c.Listen.Health)
	e.line(1, "xds      %s", cmp.Or(c.Listen.XDS, "off under serve"))
	e.line(1, "gateway  %s", c.Gateway.Address)
}

func (e *explainer) store(c *Config) {
	e.title("store")
	if c.Redis.URL == "" {
		e.line(1, "counters in this process: they are lost at a restart and not shared between replicas")
	} else {
		e.line(1, "redis %s, prefix %s, deadline %s", withoutCredentials(c.Redis.URL), c.Redis.Prefix, showDuration(c.Redis.Deadline))
	}
	if c.Redis.CacheURL != "" {
		e.line(1, "cached answers in redis %s", withoutCredentials(c.Redis.CacheURL))
	}
	f := c.Redis.OnFailure
	e.line(1, "when it does not answer: budgets %s, rates %s, cache %s, unknown keys %s", f.Budgets, f.Rates, f.Cache, f.UnknownKey)
	if c.Postgres != nil {
		e.line(1, "postgres %s", withoutCredentials(c.Postgres.URL))
	}
	e.line(1, "calendar periods begin in %s; enforcement: %s", c.Timezone, c.Enforce)
	if limits := limitsText(c.Limits); limits != "" {
		e.line(1, "everybody together: %s", limits)
	}
}

// withoutCredentials is a store's URL without user, password and query.
func withoutCredentials(address string) string {
	u, ok := splitStoreURL(address)
	if !ok {
		return "(not set)"
	}
	return u.scheme + "://" + strings.Join(u.hosts, ",") + u.path
}

func (e *explainer) models(c *Config) {
	e.title("models (%d)", len(c.Models))
	for _, m := range c.Models {
		e.line(1, "%s", named(m.Name, "strategy "+m.Strategy, listText("aliases", m.Aliases), listText("fallbacks", m.Fallbacks), limitsText(m.Limits)))
		for _, d := range m.Deployments {
			e.line(2, "%s", named(d.Name, cmp.Or(d.URL, "(no url)")+" speaks "+d.Dialect,
				prefixed("upstream model ", d.Model), credentialText(d), c.priceText(m, d),
				orderText(d), prefixed("region ", d.Region), limitsText(d.Limits)))
		}
	}
	for _, group := range slices.Sorted(maps.Keys(c.AccessGroups)) {
		e.line(1, "group %s: %s", group, strings.Join(c.AccessGroups[group], ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		if limits := limitsText(c.Providers[name].Limits); limits != "" {
			e.line(1, "provider %s: %s", name, limits)
		}
	}
}

func credentialText(d Deployment) string {
	switch d.Kind {
	case CredentialSecret:
		return "own credential"
	case CredentialEnvoy:
		return "credential from Envoy"
	case CredentialClient:
		return "the client's credential"
	}
	return "no credential"
}

func orderText(d Deployment) string {
	if d.Weight == 1 && d.Order == 1 {
		return ""
	}
	return fmt.Sprintf("weight %d, order %d", d.Weight, d.Order)
}

// priceText says where the price of a deployment comes from, as package price will look for it.
func (c *Config) priceText(m Model, d Deployment) string {
	row, own := c.priceRow(d.Provider, cmp.Or(d.Model, m.Name))
	source := "no price known"
	switch {
	case d.Price != nil:
		source = "own price " + rowText(*d.Price)
	case own:
		source = "price " + rowText(row) + " from prices"
	case d.Provider != "":
		source = "price of " + d.Provider + " from the built-in table"
	}
	if d.PriceFactor != 0 {
		source += " x " + dollars(int64(d.PriceFactor)*1000)
	}
	return source
}

// rowText is a price row in dollars per million tokens.
func rowText(p Price) string {
	var parts []string
	for _, f := range []struct {
		name string
		n    *Nano
	}{
		{"input", p.Input},
		{"output", p.Output},
		{"cache_read", p.CacheRead},
		{"cache_write", p.CacheWrite},
		{"cache_write_1h", p.CacheWrite1h},
		{"cache_write_12h", p.CacheWrite12h},
		{"reasoning", p.Reasoning},
	} {
		if f.n != nil {
			parts = append(parts, f.name+" "+dollars(*f.n))
		}
	}
	return strings.Join(parts, " ")
}

func (e *explainer) identities(c *Config) {
	e.title("orgs (%d), teams (%d), keys (%d)", len(c.Orgs), len(c.Teams), len(c.Keys))
	for _, o := range c.Orgs {
		e.line(1, "org %s", named(o.ID, scopeText(o.Scope), accessText(o.Access)))
	}
	for _, t := range c.Teams {
		e.line(1, "team %s", named(t.ID, prefixed("of org ", t.Org), when("blocked", t.Blocked), scopeText(t.Scope), accessText(t.Access), cacheText(t.Cache)))
	}
	for _, k := range c.Keys {
		expires := ""
		if !k.Expires.IsZero() {
			expires = "until " + k.Expires.UTC().Format(time.RFC3339)
		}
		e.line(1, "key %s", named(k.ID, prefixed("of team ", k.Team), prefixed("of org ", k.Org), when("blocked", k.Blocked), expires,
			when("without secret", k.SecretSHA256 == ""), listText("tags", k.Tags), scopeText(k.Scope), accessText(k.Access), cacheText(k.Cache)))
	}
	e.others(c)
}

// others are the scopes beside orgs, teams and keys, those that carry something.
func (e *explainer) others(c *Config) {
	row := func(kind, id string, s Scope) {
		if text := scopeText(s); text != "" {
			e.line(1, "%s %s", kind, named(id, text))
		}
	}
	for _, u := range c.Users {
		row("user", u.ID, u.Scope)
	}
	for _, p := range c.Projects {
		row("project", p.ID, p.Scope)
	}
	for _, m := range c.TeamMembers {
		row("team member", m.Team+"/"+m.User, m.Scope)
	}
	for _, u := range c.EndUsers {
		row("end user", u.ID, u.Scope)
	}
	for _, t := range c.Tags {
		row("tag", t.ID, t.Scope)
	}
}

func (e *explainer) cache(c *Cache) {
	if c == nil {
		e.title("cache: off")
		return
	}
	e.title("cache: answers live %s, shared within each %s, at most %s each", showDuration(c.TTL), c.Scope, showBytes(c.MaxEntry))
}

func (e *explainer) tracing(t *Tracing) {
	switch {
	case t == nil:
	case t.OTLP == TracingOn:
		e.title("spans: by OTLP over gRPC to the endpoint that the OTEL_* variables name")
	default:
		e.title("spans: by OTLP over gRPC to %s, as the OTEL_* variables say", t.OTLP)
	}
}

func (e *explainer) findings(title string, found []Finding) {
	if len(found) == 0 {
		return
	}
	e.title("%s (%d)", title, len(found))
	for _, f := range found {
		e.line(1, "%s", f)
	}
}

func scopeText(s Scope) string {
	var zone string
	if s.Timezone != nil {
		zone = s.Timezone.String()
	}
	return joinParts(prefixed("enforce ", string(s.Enforce)), limitsText(s.Limits), prefixed("periods in ", zone))
}

func accessText(a Access) string {
	var aliases []string
	for _, alias := range slices.Sorted(maps.Keys(a.Aliases)) {
		aliases = append(aliases, alias+" = "+a.Aliases[alias])
	}
	return joinParts(listText("models", a.Models), listText("aliases", aliases), listText("endpoints", a.Endpoints), listText("regions", a.Regions))
}

func cacheText(r *CacheRule) string {
	switch {
	case r == nil:
		return ""
	case r.TTL == 0:
		return prefixed("cache per ", r.Scope)
	}
	return "cache " + showDuration(r.TTL) + prefixed(" per ", r.Scope)
}

// limitsText is all limits of a scope in one line; "" when it has none.
func limitsText(l Limits) string {
	var parts []string
	for _, b := range l.Budgets {
		amount := strconv.FormatInt(b.Amount, 10)
		if b.Unit == USD {
			amount = dollars(b.Amount)
		}
		parts = append(parts, fmt.Sprintf("%s %s per %s", amount, b.Unit, b.Per)+when(" (soft)", b.Soft)+enforceText(b.Enforce))
	}
	for _, r := range []struct {
		name string
		rate *Rate
	}{{"rpm", l.RPM}, {"tpm", l.TPM}, {"parallel", l.Parallel}} {
		if r.rate != nil {
			parts = append(parts, fmt.Sprintf("%s %d", r.name, r.rate.Limit)+enforceText(r.rate.Enforce))
		}
	}
	if m := l.MaxRequest; m != nil {
		parts = append(parts, "a request at most "+maxRequestText(m))
	}
	for _, model := range slices.Sorted(maps.Keys(l.PerModel)) {
		parts = append(parts, "for "+model+" ("+limitsText(l.PerModel[model])+")")
	}
	return strings.Join(parts, ", ")
}

func maxRequestText(m *MaxRequest) string {
	var parts []string
	if m.USD != nil {
		parts = append(parts, dollars(*m.USD)+" usd")
	}
	if m.InputTokens != nil {
		parts = append(parts, fmt.Sprintf("%d input tokens", *m.InputTokens))
	}
	if m.OutputTokens != nil {
		parts = append(parts, fmt.Sprintf("%d output tokens", *m.OutputTokens))
	}
	return strings.Join(parts, " and ")
}

func enforceText(e Enforce) string {
	if e == Inherit {
		return ""
	}
	return " (" + string(e) + ")"
}

func listText(name string, list []string) string { return prefixed(name+" ", strings.Join(list, ", ")) }

// prefixed is the text behind its prefix; "" when there is no text.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func when(text string, on bool) string {
	if on {
		return text
	}
	return ""
}

// joinParts joins the parts that are not empty.
func joinParts(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ")
}

// named is an id and what belongs to it.
func named(id string, parts ...string) string { return id + prefixed(": ", joinParts(parts...)) }
