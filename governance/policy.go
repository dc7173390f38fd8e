package governance

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/cache"
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/governance/price"
	"github.com/tollgate-proxy/tollgate/governance/routing"
)

// policy is one configuration made ready for calls. It is immutable.
type policy struct {
	cfg       *config.Config
	directory *identity.Directory
	routes    *routing.Table
	prices    *price.Table
	headers   []string // that may carry a credential
	callers   map[*identity.Key]*caller
	ids       map[string]*caller // by the key's id
	upstreams map[*config.Deployment]*upstream
}

// caller is a key with everything that governs it.
type caller struct {
	key      *identity.Key
	home     string // the hash tag of the tenant's counters
	access   routing.Access
	scopes   []*limit.Scope // those that count or compare something
	budgeted bool           // one of them has a budget in dollars
	cacheTTL time.Duration  // 0: not cached
	cacheFor string         // whose answers it shares
}

// upstream is a deployment made ready.
type upstream struct {
	*config.Deployment
	scope     *limit.Scope
	counts    bool       // something of the scope is counted
	own       *price.Row // its own price; nil: the table's
	authority string
	path      string // "" keeps the request's own
	auth      string // value of the authorization header; ""
}

func newPolicy(cfg *config.Config, table *price.Table) (*policy, error) {
	p := &policy{
		cfg: cfg, prices: table.With(cfg.Prices),
		callers: map[*identity.Key]*caller{}, ids: map[string]*caller{}, upstreams: map[*config.Deployment]*upstream{},
		headers: identity.CredentialHeaders(identity.Rules{KeyHeaders: cfg.Auth.KeyHeaders}),
	}
	var err error
	if p.directory, err = identity.NewDirectory(cfg); err != nil {
		return nil, err
	}
	if p.routes, err = routing.New(cfg); err != nil {
		return nil, err
	}
	for i := range cfg.Models {
		if err := p.addDeployments(&cfg.Models[i]); err != nil {
			return nil, err
		}
	}
	p.directory.Keys(func(k *identity.Key) {
		c := p.newCaller(k)
		p.callers[k], p.ids[k.ID] = c, c
	})
	return p, nil
}

func (p *policy) addDeployments(m *config.Model) error {
	for i := range m.Deployments {
		d := &m.Deployments[i]
		u, err := url.Parse(d.URL)
		if err != nil {
			return fmt.Errorf("deployment %s: %w", d.Name, err)
		}
		up := &upstream{Deployment: d, authority: u.Host, path: strings.TrimSuffix(u.EscapedPath(), "/")}
		if d.Kind == config.CredentialSecret {
			up.auth = "Bearer " + d.Credential
		}
		if d.Price != nil {
			row := price.FromConfig(*d.Price).WithFactor(d.PriceFactor)
			up.own = &row
		}
		scope := limit.NewScope(p.cfg.Redis.Prefix, limit.Owner{
			Kind: limit.KindDeployment, ID: d.Name, Home: limit.Home("model", m.Name), Limits: d.Limits,
			Enforce: cmp.Or(d.Enforce, m.Enforce, p.cfg.Enforce), Zone: p.cfg.Timezone, Order: d.Order,
			Track: m.Strategy == "usage" && len(m.Deployments) > 1,
		})
		if up.scope, up.counts = scope, scope != nil; !up.counts {
			up.scope = limit.Uncounted(d.Name, d.Order)
		}
		p.upstreams[d] = up
	}
	return nil
}

func (p *policy) newCaller(k *identity.Key) *caller {
	tenant := k.Tenant()
	c := &caller{
		key: k, home: limit.Home(tenant.Kind, tenant.ID), access: routing.Access{Key: &k.Access, KeyID: k.ID},
	}
	above := p.cfg.Enforce
	if k.Org != nil {
		c.access.Org, c.access.OrgID = &k.Org.Access, k.Org.ID
		above = cmp.Or(k.Org.Enforce, above)
	}
	c.add(p, limit.KindKey, k.ID, k.Scope, above)
	if k.Team != nil {
		c.access.Team, c.access.TeamID = &k.Team.Access, k.Team.ID
		c.add(p, limit.KindTeam, k.Team.ID, k.Team.Scope, above)
	}
	p.setCache(c)
	return c
}

// add makes a scope of the caller ready. A key's own enforcement does not soften its team's limits.
func (c *caller) add(p *policy, kind, id string, s config.Scope, above config.Enforce) {
	zone := s.Timezone
	if zone == nil {
		zone = p.cfg.Timezone
	}
	scope := limit.NewScope(p.cfg.Redis.Prefix, limit.Owner{
		Kind: kind, ID: id, Home: c.home, Limits: s.Limits, Enforce: cmp.Or(s.Enforce, above), Zone: zone,
	})
	if scope != nil {
		c.scopes = append(c.scopes, scope)
		c.budgeted = c.budgeted || scope.HasBudget()
	}
}

// setCache finds whose cached answers the caller shares and for how long.
func (p *policy) setCache(c *caller) {
	ids := cache.IDs{Key: c.key.ID}
	var team *config.CacheRule
	if c.key.Team != nil {
		ids.Team, team = c.key.Team.ID, c.key.Team.Cache
	}
	if c.key.Org != nil {
		ids.Org = c.key.Org.ID
	}
	rule := cache.RuleFor(p.cfg.Cache, team, c.key.Cache)
	c.cacheTTL, c.cacheFor = rule.TTL, rule.ScopeID(ids)
}
