package config

import (
	"slices"
	"strings"
)

// models reads the models with their deployments.
func (d *decoder) models(s *section) {
	for _, item := range s.items("models") {
		inner := d.section(item)
		m := Model{Strategy: "usage"}
		if n := inner.require("name"); n != nil {
			m.Name, _ = d.ruled(n, modelNameRule)
			if m.Name != "" && !d.unique("model", m.Name, n) {
				continue
			}
		}
		m.Aliases = inner.eachText("aliases", exactModelRule, func(alias *node, _ string) { d.checkAlias(m.Name, alias) })
		oneOf(inner, "strategy", &m.Strategy, "usage", "shuffle", "latency", "least_busy", "cost")
		m.Fallbacks = inner.modelList("fallbacks", inFallback)
		if slices.Contains(m.Fallbacks, m.Name) {
			d.fail(inner.n.get("fallbacks"), "a model cannot be its own fallback")
		}
		if n := inner.get("limits"); n != nil {
			d.limits(n, &m.Limits)
		}
		inner.enforce(&m.Enforce)
		for _, deployment := range inner.items("deployments") {
			m.Deployments = append(m.Deployments, d.deployment(deployment, m.Name))
		}
		inner.done()
		d.later = append(d.later, func() {
			// With routing: envoy the cluster is Envoy's business.
			if len(m.Deployments) == 0 && d.cfg.Routing != "envoy" {
				d.fail(item, "deployments is required: nothing serves this model")
			}
		})
		d.cfg.Models = append(d.cfg.Models, m)
	}
}

// checkAlias refuses aliases that mean two things.
func (d *decoder) checkAlias(model string, alias *node) {
	if strings.HasSuffix(model, "*") {
		d.fail(alias, "a wildcard model cannot have aliases: they leave open which model is meant")
		return
	}
	if !d.unique("alias", alias.text, alias) {
		return
	}
	d.later = append(d.later, func() {
		if model := d.seen["model"][alias.text]; model != nil {
			d.fail(alias, "%s is the name of a model too, in %s:%d", alias.quoted(), model.file, model.line)
		}
	})
}

// deployment reads one upstream of the model with the public name.
func (d *decoder) deployment(n *node, public string) Deployment {
	s := d.section(n)
	p := Deployment{Weight: 1, Order: 1, StreamUsage: true}
	if at := s.require("name"); at != nil {
		p.Name, _ = d.ruled(at, idRule)
		if p.Name != "" {
			d.unique("deployment", p.Name, at)
		}
	}
	if s.require("url") != nil {
		s.url("url", &p.URL, upstreamRule)
	}
	if s.require("dialect") != nil {
		oneOf(s, "dialect", &p.Dialect, "openai", "azure", "anthropic", "gemini", "bedrock")
	}
	s.text("provider", &p.Provider, idRule)
	s.text("model", &p.Model, exactModelRule)
	s.credential(&p)
	d.deploymentLimits(s, &p)
	s.enforce(&p.Enforce)
	s.small("weight", &p.Weight, 1, 1000000)
	s.small("order", &p.Order, 0, 1000)
	s.text("region", &p.Region, idRule)
	if at := s.get("price_factor"); at != nil {
		p.PriceFactor, _ = convert(d, at, parseFactor)
	}
	if at := s.get("price"); at != nil {
		p.Price = d.price(at)
	}
	s.boolean("stream_usage", &p.StreamUsage)
	s.done()
	d.deriveProvider(s, &p, public)
	return p
}

func (s *section) small(name string, into *int, least, most int) {
	wide := int64(*into)
	s.count(name, &wide, int64(least), int64(most))
	*into = int(wide)
}

// credential reads who puts which credential on the upstream request. The words envoy and client count only when they
// stand in the file: a variable holds a secret, whatever it says.
func (s *section) credential(p *Deployment) {
	n := s.get("credential")
	if n == nil {
		return
	}
	if !n.expanded && n.reference == "" && n.kind == scalarNode {
		switch n.text {
		case "envoy":
			p.Kind = CredentialEnvoy
			return
		case "client":
			p.Kind = CredentialClient
			return
		}
	}
	p.Kind = CredentialSecret
	s.secret("credential", &p.Credential)
}

// deploymentLimits reads limits and the short forms rpm and tpm, which must not stand in both places.
func (d *decoder) deploymentLimits(s *section, p *Deployment) {
	long := s.get("limits")
	if long != nil {
		d.limits(long, &p.Limits)
	}
	for _, short := range []struct {
		name string
		into **Rate
	}{{"rpm", &p.Limits.RPM}, {"tpm", &p.Limits.TPM}} {
		n := s.get(short.name)
		if n != nil && long != nil && long.get(short.name) != nil {
			d.fail(n, "stands in limits too; one of the two must go")
			continue
		}
		s.rate(short.name, short.into)
	}
	if p.Limits.TPM != nil && p.Limits.TPMCounts == "" {
		p.Limits.TPMCounts = CountTotal
	}
}

// deriveProvider fills the provider in from the host, and warns of a deployment that no price row will be found for.
func (d *decoder) deriveProvider(s *section, p *Deployment, public string) {
	at, given := s.n.get("provider"), p.Provider != ""
	if at == nil {
		p.Provider = providerOf(p.URL)
		at = s.n.get("url")
	}
	if at == nil || p.URL == "" || p.Price != nil {
		return
	}
	provider, model := p.Provider, p.Model
	if model == "" {
		model = public
	}
	d.later = append(d.later, func() {
		_, row := d.cfg.priceRow(provider, model)
		switch {
		case row || slices.Contains(knownProviders, provider):
		case provider == "":
			d.warn(at, "the host belongs to no known provider: without provider or price this deployment has no price")
		case given && !d.known("provider", provider):
			d.warn(at, "%q is no known provider: without price or a row in prices this deployment has no price%s",
				provider, didYouMean(provider, knownProviders))
		}
	})
}

// price reads one row of prices.
func (d *decoder) price(n *node) *Price {
	s := d.section(n)
	p := &Price{}
	s.money("input", &p.Input)
	s.money("output", &p.Output)
	s.money("cache_read", &p.CacheRead)
	s.money("cache_write", &p.CacheWrite)
	s.money("cache_write_1h", &p.CacheWrite1h)
	s.money("cache_write_12h", &p.CacheWrite12h)
	s.money("reasoning", &p.Reasoning)
	// A price left out would be a price of nothing: 0 has to be said.
	if n.kind == mappingNode && (s.n.get("input") == nil || s.n.get("output") == nil) {
		d.fail(n, "needs input and output; 0 is a price")
	}
	s.done()
	return p
}

// tables reads the rows beside models and identities: providers, access groups, prices.
func (d *decoder) tables(s *section) {
	c := d.cfg
	for _, e := range s.pairs("providers") {
		if !d.row("provider", e, idRule) {
			continue
		}
		inner := d.section(e.value)
		var p Provider
		if n := inner.get("limits"); n != nil {
			d.limits(n, &p.Limits)
		}
		inner.enforce(&p.Enforce)
		inner.done()
		put(&c.Providers, e.name, p)
	}
	for _, e := range s.pairs("access_groups") {
		if d.row("access group", e, idRule) {
			// A section over the parent reads the list under its own key.
			group := d.section(s.n.get("access_groups"))
			put(&c.AccessGroups, e.name, group.modelList(e.name, inGroup))
		}
	}
	for _, e := range s.pairs("prices") {
		if d.row("price", e, modelNameRule) {
			put(&c.Prices, e.name, *d.price(e.value))
		}
	}
}

// row checks the name of a row in a mapping; the same name in two files is an error.
func (d *decoder) row(kind string, e entry, check rule) bool {
	at := &node{kind: scalarNode, file: e.value.file, line: e.line, key: e.value.key, text: e.name}
	if wrong := check(e.name); wrong != "" {
		d.fail(at, "the name %s", wrong)
		return false
	}
	return d.unique(kind, e.name, at)
}

func put[V any](into *map[string]V, name string, v V) {
	if *into == nil {
		*into = make(map[string]V)
	}
	(*into)[name] = v
}
