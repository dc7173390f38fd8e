package governance

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/cache"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/governance/price"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
	"github.com/tollgate-proxy/tollgate/governance/routing"
	"github.com/tollgate-proxy/tollgate/governance/usage"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// leastOutput is the fewest output tokens worth reserving for a request that names no cap.
const leastOutput = 256

// candidate is a deployment that could serve the call, with its price.
type candidate struct {
	up    *upstream
	model string
	row   price.Row
}

// Admit decides on the whole request: it returns how to send it on, or the whole answer. It waits for Redis once; for a
// key that memory lacked once more, and once more for identities that have changed.
func (c *Call) Admit(ctx context.Context, body []byte) (*Forward, *Reply) {
	if c.fresh.entry != nil || c.fresh.lookup != nil {
		return c.admitRow(ctx, body)
	}
	return c.attempt(ctx, body)
}

// attempt decides on the request for the caller at hand.
func (c *Call) attempt(ctx context.Context, body []byte) (*Forward, *Reply) {
	if reply := c.read(body); reply != nil {
		return nil, reply
	}
	var room [8]candidate
	cands, reply := c.candidates(room[:0])
	if reply != nil {
		return nil, reply
	}
	c.estimate(cands)
	if reply := c.beforeAnyTrip(); reply != nil {
		return nil, reply
	}
	c.setCacheKey(body)
	reply = c.ask(ctx, cands)
	if reply != nil {
		return nil, reply
	}
	return c.forward(body), nil
}

// read parses the body and finds the model.
func (c *Call) read(body []byte) *Reply {
	if c.request == nil {
		req, err := usage.ParseChat(body, usage.Sources{EndUser: c.policy.cfg.Identity.EndUser, Header: c.header})
		if err != nil {
			r := &refusal.Refusal{Reason: refusal.Malformed}
			var m *usage.MalformedError
			if errors.As(err, &m) {
				r.Message, r.Param = m.Message, m.Param
			}
			return c.refuse(r)
		}
		c.request = req
	}
	target, refused := c.policy.routes.Resolve(c.caller.access, c.request.Model)
	if refused != nil {
		return c.refuse(refused)
	}
	c.target = target
	return nil
}

// candidates lists the deployments that could serve the call, by preference, with their prices.
func (c *Call) candidates(dst []candidate) ([]candidate, *Reply) {
	var room [8]routing.Candidate
	list := c.policy.routes.Candidates(room[:0], c.target, c.endpoint.Dialect, c.gate.random)
	if len(list) == 0 {
		return nil, c.refuse(c.policy.routes.Unserved(c.target, c.endpoint.Dialect))
	}
	for _, l := range list {
		up := c.policy.upstreams[l.Deployment]
		row, ok := c.policy.price(up, l.UpstreamModel)
		if !ok && (c.policy.cfg.Defaults.Unpriced == "deny" || c.policy.cfg.Defaults.Unpriced == "deny_budgeted" && c.caller.budgeted) {
			continue
		}
		dst = append(dst, candidate{up: up, model: l.UpstreamModel, row: row.ForTier(c.request.ServiceTier)})
	}
	if len(dst) == 0 {
		return nil, c.refuse(&refusal.Refusal{Reason: refusal.Unpriced, Param: "model"})
	}
	return dst, nil
}

// price is what a deployment costs: its own price, else the table's row of its provider and model. A row that is not
// found costs nothing.
func (p *policy) price(up *upstream, model string) (price.Row, bool) {
	if up.own != nil {
		return *up.own, true
	}
	row, ok := p.prices.Find(up.Provider, model)
	return row.WithFactor(up.PriceFactor), ok
}

// estimate sets what the request may cost at most: for the dearest deployment that could serve it.
func (c *Call) estimate(cands []candidate) {
	req := c.request
	d := limit.Demand{
		ID: c.leaseID(), Note: c.caller.key.ID, Input: c.gate.learned.input(c.target.Name, req.InputTokens),
		Want: req.OutputCap, Least: req.OutputCap, Choices: req.Choices,
	}
	most, known := int64(0), true // the largest answer that any candidate can give
	for i := range cands {
		k := &cands[i]
		fixed, perM := k.row.Reserve(d.Input)
		d.Fixed, d.PerMNano = max(d.Fixed, fixed), max(d.PerMNano, perM)
		n := c.policy.prices.MaxOutput(k.up.Provider, k.model)
		most, known = max(most, n), known && n > 0
	}
	if d.Want == 0 {
		d.Want = c.policy.cfg.Defaults.OutputTokens
		d.Least = min(leastOutput, d.Want)
	}
	if known {
		d.Want, d.Least = min(d.Want, most), min(d.Least, most)
	}
	c.demand = d
}

// beforeAnyTrip refuses what needs no look at Redis: a request larger than allowed, a limit known to be used up.
func (c *Call) beforeAnyTrip() *Reply {
	for _, s := range c.caller.scopes {
		if refused := s.TooExpensive(c.demand); refused != nil {
			return c.refuse(refused)
		}
	}
	if f, ok := c.gate.limiter.Remembered(c.caller.scopes, c.demand.Free()); ok {
		return c.refuseLimit(f)
	}
	return nil
}

// setCacheKey decides whether the call may be answered from the cache, or its answer be kept.
func (c *Call) setCacheKey(body []byte) {
	asked := cache.Controls{NoCache: c.request.Cache.NoCache, NoStore: c.request.Cache.NoStore}
	if age := c.request.Cache.MaxAge; c.request.Cache.HasMaxAge {
		asked.MaxAge = &age
	}
	c.caching = false
	c.controls = cache.ParseControls(c.head.Headers.Values("cache-control")).Join(asked)
	if c.caller.cacheTTL <= 0 || c.request.Uncacheable || c.controls.NoCache && c.controls.NoStore {
		return
	}
	key, err := cache.KeyOf(cache.Request{
		Endpoint: c.endpoint.Name, Model: c.target.Name, ScopeID: c.caller.cacheFor, Body: body,
		Variant: c.regions(),
	})
	if err != nil {
		return // such an answer may not be kept, or cannot be told from others
	}
	c.cacheKey, c.caching = key, true
}

// regions is the region rule that chooses among the deployments, as part of what an answer is filed under.
func (c *Call) regions() []string {
	list, _ := c.caller.access.Regions()
	return list
}

// ask sends the one pipeline before the model call and judges each reply of it.
func (c *Call) ask(ctx context.Context, cands []candidate) *Reply {
	ctx = c.traced(ctx)
	batch := c.gate.backend.Batch(c.id)
	scopes, counting := c.counting(cands)
	ask := limit.Ask{Demand: c.demand, Scopes: c.caller.scopes, Candidates: scopes, Usage: c.target.Model.Strategy == "usage"}
	on := c.policy.cfg.Redis.OnFailure
	ask.DenyBudgets, ask.DenyRates = on.Budgets == "deny", on.Rates == "deny"
	var admission *limit.Admission
	if counting {
		admission = c.gate.limiter.Reserve(batch, ask)
	}
	var reread *identity.Refresh
	if c.fresh.tentative {
		reread = c.refresh(batch)
	}
	var stored pipeline.Handle[[]byte]
	lookup := c.caching && !c.controls.NoCache
	if lookup {
		stored = pipeline.Declare(batch.On(c.gate.store), "cache", pipeline.Bytes, "GET", c.cacheKey.Redis(c.policy.cfg.Redis.Prefix))
	}
	reply := c.decide(ctx, admission, ask, reread)
	c.trips = c.fresh.waited + batch.Trips()
	if reply == undecided {
		c.fresh.waited = c.trips
	}
	if reply != nil {
		return reply
	}
	c.choose(cands)
	if !lookup {
		return nil
	}
	raw, err := stored.Get(ctx)
	c.trips = c.fresh.waited + batch.Trips() // it grows when nothing of the call is counted
	if err == nil {
		return c.fromCache(raw)
	}
	if errors.Is(err, pipeline.ErrNil) {
		return nil
	}
	if c.policy.cfg.Redis.OnFailure.Cache == "deny" {
		c.void = true
		return c.refuse(&refusal.Refusal{Reason: refusal.StoreDown})
	}
	return nil
}

// counting lists the candidates' scopes, and says whether anything of the call is counted in Redis at all. When no
// candidate counts anything the first one is taken without asking.
func (c *Call) counting(cands []candidate) ([]*limit.Scope, bool) {
	counts := false
	list := make([]*limit.Scope, len(cands))
	for i := range cands {
		list[i] = cands[i].up.scope
		counts = counts || cands[i].up.counts
	}
	if !counts {
		return nil, len(c.caller.scopes) > 0
	}
	return list, true
}

// decide gets the grant, or what stands in its place.
func (c *Call) decide(ctx context.Context, admission *limit.Admission, ask limit.Ask, reread *identity.Refresh) *Reply {
	if admission == nil { // every row of Redis counts, so none is in play
		c.grant = c.gate.limiter.Unleased(c.demand, nil)
		return nil
	}
	v, err := admission.Get(ctx, c.gate.deferred)
	c.gate.lost(c.policy, c.caller, v.Lost)
	if reply := c.stands(ctx, reread, v, err); reply != nil {
		if err != nil {
			admission.Abandon()
		}
		return reply
	}
	if err != nil {
		return c.withoutRedis(admission, ask, err)
	}
	if v.Grant != nil {
		c.grant = v.Grant
		c.would = c.report(v.Would)
		return c.withoutCounters(v)
	}
	if v.Busy {
		return c.refuse(&refusal.Refusal{Reason: refusal.DeploymentsBusy, RetryAfter: max(v.Wait, time.Second)})
	}
	return c.refuseLimit(v.Failures[0])
}

// withoutRedis applies the failure policy: the limits themselves are never reported as used up.
func (c *Call) withoutRedis(admission *limit.Admission, ask limit.Ask, err error) *Reply {
	on := c.policy.cfg.Redis.OnFailure
	g, denied, ok := c.gate.limiter.Local(ask, limit.Policy{Budgets: on.Budgets, Rates: on.Rates}, c.gate.replicas.Load())
	if !ok {
		admission.Abandon()
		if unsaid, ok := c.gate.outages.now(c.gate.now()); ok {
			c.gate.log.Warn("request refused: redis gave no verdict", "request_id", c.id, "scope", denied.Scope.Kind,
				"limit", denied.Kind, "error", err, "more_since", unsaid)
		}
		return c.refuse(&refusal.Refusal{Reason: refusal.StoreDown})
	}
	c.grant = g
	admission.Adopt(g)
	c.gate.metrics.unleased.Inc()
	return nil
}

// withoutCounters applies the failure policy to the counters that the grant had to pass over, and only to them.
func (c *Call) withoutCounters(v limit.Verdict) *Reply {
	if len(v.Broken) == 0 {
		return nil
	}
	on := c.policy.cfg.Redis.OnFailure
	denied, ok := c.gate.limiter.Passes(v.Grant, v.Broken, limit.Policy{Budgets: on.Budgets, Rates: on.Rates}, c.gate.replicas.Load())
	if ok {
		return nil
	}
	c.void = true
	return c.refuseLimit(limit.Failure{Scope: denied.Scope, Kind: limit.FailBroken})
}

// choose takes the deployment that the grant chose.
func (c *Call) choose(cands []candidate) {
	k := cands[max(c.grant.Chosen, 0)]
	c.chosen, c.upModel, c.row = k.up, k.model, k.row
}

// report notes what an audited limit would have refused.
func (c *Call) report(would []limit.Failure) string {
	if len(would) == 0 {
		return ""
	}
	f := would[0]
	for _, f := range would {
		c.gate.metrics.wouldRefuse(f)
	}
	name := f.Scope.Kind + "/" + f.Scope.ID + " " + string(f.Kind)
	if f.Budget != nil {
		name += " " + string(f.Budget.Per)
	}
	return name
}

// fromCache answers the call with a stored entry; nil when the entry will not do.
func (c *Call) fromCache(raw []byte) *Reply {
	entry, err := cache.Decode(c.cacheKey, raw)
	if err != nil {
		c.gate.metrics.cache.WithLabelValues("broken").Inc()
		return nil
	}
	now := c.gate.now()
	if !c.controls.Accepts(entry, c.caller.cacheTTL, now) {
		return nil
	}
	contentType, body, err := entry.Replay(c.endpoint.Name, cache.Framing{
		Stream: c.request.Stream, IncludeUsage: c.request.IncludeUsage,
	})
	if err != nil {
		return nil
	}
	c.cached = &entry
	c.gate.metrics.cache.WithLabelValues("hit").Inc()
	header := c.governedHeaders([][2]string{
		{"content-type", contentType}, {"x-tollgate-cache", "hit"}, {"age", strconv.FormatInt(entry.Age(now), 10)},
	})
	return &Reply{Status: entry.Status, Header: header, Body: body, Details: "tollgate_cache_hit"}
}
