package governance

import (
	"strings"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// Forward is how an admitted request goes on.
type Forward struct {
	Set    [][2]string // headers to set, ":path" and ":authority" among them
	Remove []string
	Body   []byte // the whole body as the upstream gets it
	Edited bool   // Body is not the one that came
}

// forward makes the request the chosen deployment's: its name for the model, its host, path and credential, and nothing
// of the client's credential.
func (c *Call) forward(body []byte) *Forward {
	up := c.chosen
	edits := usage.Edits{Model: c.upModel, IncludeUsage: c.request.Stream && up.StreamUsage && !c.answer.blind}
	if c.request.OutputCap == 0 && (c.grant.Output < c.demand.Want || c.policy.cfg.Defaults.EnforceOutputTokens) {
		edits.OutputCap = c.grant.Output
	}
	out := c.request.Apply(body, edits)
	f := &Forward{
		Set: [][2]string{
			{config.ClusterHeader, config.ClusterName(up.Name)},
			{":authority", up.authority},
			{":path", c.path()},
		},
		Body:   out,
		Edited: len(out) != len(body) || len(out) > 0 && &out[0] != &body[0],
	}
	f.Remove = c.removals()
	if up.auth != "" {
		f.Set = append(f.Set, [2]string{"authorization", up.auth})
	}
	c.answer.expect(c, edits)
	return f
}

// path is the upstream's: the URL's own path stands in for the /v1 of the request's. The client's query goes along, but
// for a credential in it.
func (c *Call) path() string {
	path, query, has := strings.Cut(c.head.Path, "?")
	if c.chosen.path != "" {
		path = c.chosen.path + strings.TrimPrefix(usage.CleanPath(path), "/v1")
	}
	if has {
		if query = identity.StripQuery(query); query != "" {
			path += "?" + query
		}
	}
	return path
}

// removals are the headers that must not reach the upstream: every header that may carry the client's credential, all
// that is ours, and accept-encoding, because usage is read from the answer as it passes.
func (c *Call) removals() []string {
	list := make([]string, 0, len(c.policy.headers)+4)
	for _, h := range c.policy.headers {
		if h == "authorization" && c.chosen.auth != "" {
			continue // it is overwritten
		}
		list = append(list, h)
	}
	list = append(list, "accept-encoding")
	for _, h := range c.head.Headers.Names() {
		if strings.HasPrefix(h, "x-tollgate-") && h != config.ClusterHeader {
			list = append(list, h)
		}
	}
	return list
}
