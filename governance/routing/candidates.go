package routing

import (
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// Candidate is a deployment that may serve a request.
type Candidate struct {
	Deployment    *config.Deployment
	UpstreamModel string // the model's name there
}

// speaks reports whether a deployment understands a path as it was called.
func speaks(path usage.Dialect, deployment string) bool {
	if path == usage.OpenAI && deployment == string(usage.Azure) {
		return true // Azure serves OpenAI's paths too
	}
	return deployment == string(path)
}

// eligible reports whether a deployment speaks the path and lies where the caller's rules allow.
func (tgt Target) eligible(dep *config.Deployment, d usage.Dialect) bool {
	return speaks(d, dep.Dialect) && tgt.Access.RegionAllowed(dep.Region)
}

// Candidates appends the deployments that may serve tgt on a path of dialect d, in the order in which to try them as
// far as that is known without live figures: lower order first; within an order a shuffle, by weight for the strategy
// "shuffle" and even for the others, whose ties then spread. rnd(n) is a random number in [0, n); nothing but dst is
// allocated. No candidates: Unserved says why.
func (t *Table) Candidates(dst []Candidate, tgt Target, d usage.Dialect, rnd func(n int) int) []Candidate {
	first := len(dst) // of the deployments with the order at hand
	for _, dep := range tgt.entry.deployments {
		if !tgt.eligible(dep, d) {
			continue
		}
		if len(dst) > first && dst[first].Deployment.Order != dep.Order {
			shuffle(dst[first:], tgt.entry.uniform, rnd)
			first = len(dst)
		}
		name := dep.Model
		if name == "" {
			name = tgt.Rest
		}
		dst = append(dst, Candidate{Deployment: dep, UpstreamModel: name})
	}
	shuffle(dst[first:], tgt.entry.uniform, rnd)
	return dst
}

// shuffle draws without putting back. A deployment of weight 0 comes after all others.
func shuffle(c []Candidate, uniform bool, rnd func(n int) int) {
	for i := range c {
		total := 0
		for _, x := range c[i:] {
			total += x.weight(uniform)
		}
		if total == 0 {
			return
		}
		draw, j := rnd(total), i
		for draw >= c[j].weight(uniform) {
			draw -= c[j].weight(uniform)
			j++
		}
		c[i], c[j] = c[j], c[i]
	}
}

func (c Candidate) weight(uniform bool) int {
	if uniform {
		return 1
	}
	return max(c.Deployment.Weight, 0)
}

// Unserved is the refusal of a target that has no candidates, with the reason that an operator can act on.
func (t *Table) Unserved(tgt Target, d usage.Dialect) *refusal.Refusal {
	r := &refusal.Refusal{Reason: refusal.NoDeployment, Param: "model"}
	spoken := false
	for _, dep := range tgt.entry.deployments {
		spoken = spoken || speaks(d, dep.Dialect)
	}
	if !spoken {
		r.Message = "the model " + refusal.Quote(tgt.Name) + " has no deployment that speaks the " + string(d) + " dialect of this path"
		return r
	}
	r.Message = "the model " + refusal.Quote(tgt.Name) + " has no deployment in the regions that this key is bound to"
	for _, l := range tgt.Access.levels() {
		if l.access != nil && len(l.access.Regions) != 0 {
			r.ScopeKind, r.ScopeID = l.kind, l.id
		}
	}
	return r
}
