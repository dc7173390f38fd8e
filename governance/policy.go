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
	anonymous *caller            // stands for a key that no store tells about, where the policy lets it pass
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
	rows     *rowCaller     // how it was made from rows of Redis; nil for a key of the configuration file
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
		c := p.newCaller(k, nil)
		p.callers[k], p.ids[k.ID] = c, c
	})
	nobody, err := identity.NewKey(identity.Key{Key: &config.Key{ID: "anonymous"}})
	if err != nil {
		return nil, err
	}
	p.anonymous = p.newCaller(nobody, nil)
	p.anonymous.cacheTTL = 0
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

// newCaller makes a key ready. rows are those of its identities that come from Redis, by kind; nil for a key of the file.
// Every one of them is a scope, whether it counts anything or not, so that its revision is compared.
func (p *policy) newCaller(k *identity.Key, rows map[identity.Kind]*identity.Row) *caller {
	tenant := k.Tenant()
	c := &caller{
		key: k, home: limit.Home(tenant.Kind, tenant.ID), access: routing.Access{Key: &k.Access, KeyID: k.ID},
	}
	above := p.cfg.Enforce
	if k.Org != nil {
		c.access.Org, c.access.OrgID = &k.Org.Access, k.Org.ID
		above = cmp.Or(k.Org.Enforce, above)
	}
	c.add(p, limit.Owner{Kind: limit.KindKey, ID: k.ID}, k.Scope, above, rows[identity.KindKey])
	if row := rows[identity.KindMember]; row != nil {
		c.add(p, limit.Owner{}, rowScope(row), above, row)
	}
	if k.Team != nil {
		c.access.Team, c.access.TeamID = &k.Team.Access, k.Team.ID
		c.add(p, limit.Owner{Kind: limit.KindTeam, ID: k.Team.ID}, k.Team.Scope, above, rows[identity.KindTeam])
	}
	for _, kind := range [...]identity.Kind{identity.KindProject, identity.KindUser, identity.KindOrg} {
		if row := rows[kind]; row != nil {
			c.add(p, limit.Owner{}, rowScope(row), above, row)
		}
	}
	p.setCache(c)
	return c
}

// add makes a scope of the caller ready. A key's own enforcement does not soften its team's limits. A row of Redis
// names its own home and revision.
func (c *caller) add(p *policy, o limit.Owner, s config.Scope, above config.Enforce, row *identity.Row) {
	o.Home = c.home
	if row != nil {
		o.Kind, o.ID, o.Home, o.Revision = string(row.Kind), row.ID, row.Home, row.Revision
	}
	o.Limits, o.Enforce, o.Zone = s.Limits, cmp.Or(s.Enforce, above), s.Timezone
	if o.Zone == nil {
		o.Zone = p.cfg.Timezone
	}
	scope := limit.NewScope(p.cfg.Redis.Prefix, o)
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
