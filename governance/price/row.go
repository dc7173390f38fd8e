package price

import "github.com/tollgate-proxy/tollgate/governance/config"

// Row is the price of one model at one service tier and one contract. It is a small comparable value; the zero Row is
// free of charge.
type Row struct {
	entry  *entry
	tier   int                // of entry.tiers
	factor config.PriceFactor // 0 stands for 1
}

// FromConfig makes a Row of a price that the configuration states in a deployment. A price for input or output that it
// does not state is 0.
func FromConfig(p config.Price) Row { return Row{entry: fromConfig("deployment", p)} }

func fromConfig(name string, p config.Price) *entry {
	s := sheet{}
	for kind, price := range [kinds]*config.Nano{
		p.Input, p.Output, p.CacheRead, p.CacheWrite, p.CacheWrite1h, p.CacheWrite12h, p.Reasoning,
	} {
		switch {
		case price != nil:
			s[kind] = *price
		case kind > output:
			s[kind] = missing
		}
	}
	s.fill()
	return &entry{name: name, tiers: []tier{{name: standard, steps: schedule{{sheet: s}}}}}
}

// Name says where the price comes from: "builtin:openai/gpt-4o", "config:openai/my-model" or "deployment", followed by
// "+priority" and the like when it is not the standard service tier's.
func (r Row) Name() string {
	if r.entry == nil {
		return ""
	}
	if r.tier == 0 {
		return r.entry.name
	}
	return r.entry.name + "+" + r.entry.tiers[r.tier].name
}

// ForTier is the Row at a service tier as requests and answers name it ("priority", "flex", ...). A tier that has no
// price of its own, and any name unknown, is the standard tier.
func (r Row) ForTier(service string) Row {
	r.tier = 0
	if r.entry == nil || service == "" {
		return r
	}
	service = tierName(service)
	for i, t := range r.entry.tiers {
		if t.name == service {
			r.tier = i
		}
	}
	return r
}

// WithFactor is the Row under a contract: its contract price is the list price times the factor.
func (r Row) WithFactor(f config.PriceFactor) Row {
	r.factor = f
	return r
}

// Free reports that nothing the Row is about costs anything.
func (r Row) Free() bool {
	for _, s := range [...]schedule{r.schedule(), r.standard()} {
		for _, step := range s {
			if step.sheet != (sheet{}) {
				return false
			}
		}
	}
	return true
}

var freeOfCharge = schedule{{}}

func (r Row) schedule() schedule {
	if r.entry == nil {
		return freeOfCharge
	}
	return r.entry.tiers[r.tier].steps
}

func (r Row) standard() schedule {
	if r.entry == nil {
		return freeOfCharge
	}
	return r.entry.tiers[0].steps
}

// millionths is the factor, which is 1 when none is set.
func (r Row) millionths() uint64 {
	if r.factor <= 0 {
		return million
	}
	return uint64(r.factor)
}
