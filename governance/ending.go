package governance

import (
	"context"

	"github.com/tollgate-proxy/tollgate/governance/cache"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/governance/price"
	"github.com/tollgate-proxy/tollgate/governance/usage"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// ending is what an admitted call came to, by the table of governance.md "What each ending charges".
type ending struct {
	outcome   ledger.Outcome
	usage     usage.Usage
	estimated bool   // the usage is ours, not the upstream's
	capped    bool   // never charged more than was reserved: what is not known is not guessed above it
	void      bool   // the request never was: no record
	tier      string // which service tier the answer says it used; "" for the one asked for
}

// ending judges how the call ended. It is pure: all it looks at was seen before.
func (c *Call) ending() ending {
	a := &c.answer
	if c.cached != nil {
		return ending{outcome: ledger.CacheHit}
	}
	if c.void {
		return ending{void: true}
	}
	if !c.released {
		return ending{outcome: ledger.Abandoned}
	}
	if a.status == 0 { // gone before the upstream answered: its provider may be at work already
		return ending{
			outcome: ledger.Abandoned, estimated: true, capped: true, usage: usage.Usage{Input: c.demand.Input},
		}
	}
	seen := a.reader.Result()
	e := c.judge(seen)
	e.tier = seen.ServiceTier
	return e
}

// judge is the ending of a call whose upstream, or Envoy in its place, answered.
func (c *Call) judge(seen usage.Result) ending {
	a := &c.answer
	switch {
	case a.local || a.status < 200 || a.status > 299:
		return ending{outcome: ledger.Failed, usage: seen.Usage}
	case a.blind && !a.over:
		return ending{outcome: ledger.Complete, estimated: true, capped: true, usage: usage.Usage{
			Input: c.demand.Input, Output: c.grant.Output * c.request.Choices,
		}}
	case seen.Failed:
		return ending{outcome: ledger.Failed, usage: seen.Usage}
	case a.over || seen.Complete:
		if seen.HasUsage {
			return ending{outcome: ledger.Complete, usage: seen.Usage}
		}
		return ending{outcome: ledger.Complete, usage: c.guess(seen), estimated: true, capped: true}
	case seen.HasUsage:
		return ending{outcome: ledger.Partial, usage: seen.Usage}
	}
	return ending{outcome: ledger.Partial, usage: c.guess(seen), estimated: true, capped: true}
}

// guess is the usage of an answer that reported none: the input as estimated, the output by the bytes that passed. One
// that was broken off has used at least a token.
func (c *Call) guess(seen usage.Result) usage.Usage {
	out := c.gate.learned.output(c.target.Name, seen.OutputBytes)
	return usage.Usage{Input: c.demand.Input, Output: out}
}

// settle prices the ending and queues all that is to be written: the settlement with the record, and the cache entry.
// They leave with the deferred pipeline.
func (c *Call) settle() {
	e := c.ending()
	cost := c.cost(e)
	r := c.record(e, cost)
	ctx := c.traced(context.Background())
	w := c.gate.deferred.Writes()
	w.For(ctx, c.id)
	settlement := limit.Ending{
		Nano: cost.Contract, Usage: e.usage, Void: e.void, Cached: e.outcome == ledger.CacheHit,
	}
	if !e.void {
		settlement.Record = c.gate.encode(r)
		c.gate.totals.Add(r)
		c.gate.metrics.settled(r)
		c.learn(e)
		c.traceRecord(r)
	}
	c.grant.Settle(w, settlement)
	if e.outcome == ledger.Complete {
		c.store(ctx, w, e)
	}
	w.Close()
}

// cost prices an ending at the row in force at the admission.
func (c *Call) cost(e ending) price.Cost {
	if c.chosen == nil || e.outcome == ledger.CacheHit {
		return price.Cost{}
	}
	row := c.row
	if e.tier != "" {
		row = row.ForTier(e.tier)
	}
	cost := row.Cost(e.usage)
	if e.capped && cost.Contract > c.grant.Reserved && c.grant.Reserved > 0 {
		cost.Contract = c.grant.Reserved
	}
	return cost
}

// learn compares the reported usage with the estimates, for the estimates to come.
func (c *Call) learn(e ending) {
	if e.outcome != ledger.Complete || e.estimated {
		return
	}
	seen := c.answer.reader.Result()
	c.gate.learned.see(c.target.Name, c.request.InputTokens, e.usage, seen.OutputBytes)
}

// record is the call in the books.
func (c *Call) record(e ending, cost price.Cost) *ledger.Record {
	key := c.caller.key
	now := c.gate.limiter.Now()
	r := &ledger.Record{
		ID: c.id, AdmittedAt: c.grant.At, EndedAt: now,
		Endpoint: c.endpoint.Name, Stream: c.request.Stream, ModelAsked: c.request.Model, Model: c.target.Name,
		Outcome: e.outcome, Status: c.answer.status, Estimated: e.estimated, WouldFail: c.would,
		ListNano: cost.List, CostNano: cost.Contract, Reserved: c.grant.Reserved,
		EndUser:    ledger.EndUser(c.policy.cfg.Ledger.EndUser, c.request.EndUser),
		DurationMs: c.gate.now().Sub(c.began).Milliseconds(),
	}
	if c.cached != nil {
		r.Status = c.cached.Status
	}
	belong(r, key)
	if c.chosen != nil && c.cached == nil {
		r.Deployment, r.Provider, r.Upstream, r.Price = c.chosen.Name, c.chosen.Provider, c.upModel, c.row.Name()
	}
	if !c.answer.at.IsZero() {
		r.FirstByteMs = c.answer.at.Sub(c.began).Milliseconds()
	}
	r.SetUsage(e.usage)
	return r
}

// belong says in a record whose request it was.
func belong(r *ledger.Record, key *identity.Key) {
	r.Key, r.User, r.Tags = key.ID, key.Key.User, key.Tags
	if key.Team != nil {
		r.Team = key.Team.ID
	}
	if key.Org != nil {
		r.Org = key.Org.ID
	}
}

// store queues the answer for the cache, when it may be kept.
func (c *Call) store(ctx context.Context, w *pipeline.Writes, e ending) {
	a := &c.answer
	if a.collector == nil || !a.over || c.gate.full.Load() {
		return
	}
	contentType, body, err := a.collector.Finish()
	if err != nil {
		return // too large, or not an answer to repeat
	}
	entry := cache.Entry{
		Stored: c.gate.now(), Status: a.status, Model: c.target.Name, Usage: e.usage, ContentType: contentType, Body: body,
	}
	ttl := c.caller.cacheTTL
	if t := c.request.Cache.TTL; t > 0 {
		ttl = min(ttl, t)
	}
	if c.gate.stores != c.gate.deferred {
		w = c.gate.stores.Writes()
		w.For(ctx, c.id)
		defer w.Close()
	}
	w.Do("cache", "SET", c.cacheKey.Redis(c.policy.cfg.Redis.Prefix), entry.Encode(c.cacheKey), "PX", ttl.Milliseconds())
}

// encode is a record's text; one that cannot be written is logged, never lost silently.
func (g *Gate) encode(r *ledger.Record) []byte {
	b, err := r.Encode()
	if err != nil {
		g.log.Error("spend record cannot be encoded", "request_id", r.ID, "error", err)
		return nil
	}
	return b
}

// append writes a record that belongs to no call of this process.
func (g *Gate) append(r *ledger.Record) {
	w := g.deferred.Writes()
	g.limiter.Unleased(limit.Demand{ID: r.ID}, nil).Settle(w, limit.Ending{Record: g.encode(r)})
	w.Close()
}
