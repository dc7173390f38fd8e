package limit

import "github.com/tollgate-proxy/tollgate/governance/refusal"

// TooExpensive refuses a single request by its estimate; nil lets it pass. It looks at nothing but its arguments.
func (s *Scope) TooExpensive(d Demand) *refusal.Refusal {
	m := s.MaxRequest
	if m == nil {
		return nil
	}
	for _, c := range []struct {
		most *int64
		need int64
		unit string
	}{
		{m.USD, d.Fixed + mulDivUp(d.Least*d.Choices, d.PerMNano, 1_000_000), "usd"},
		{m.InputTokens, d.Input, "input_tokens"},
		{m.OutputTokens, d.Least * d.Choices, "output_tokens"},
	} {
		if c.most != nil && c.need > *c.most {
			return &refusal.Refusal{
				Reason: refusal.MaxRequest, ScopeKind: s.Kind, ScopeID: s.ID, Limit: "max_request",
				Unit: c.unit, Amount: *c.most, Estimate: c.need,
			}
		}
	}
	return nil
}
