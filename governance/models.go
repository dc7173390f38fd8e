package governance

import (
	"net/url"

	"github.com/go-json-experiment/json"

	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// modelList is the answer of GET /v1/models, as OpenAI's clients read it.
type modelList struct {
	Object string      `json:"object"`
	Data   []modelInfo `json:"data"`
}

type modelInfo struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// listModels answers with the models that the caller may use, or with the one that was asked for.
func (c *Call) listModels() *Reply {
	info := func(name string) modelInfo { return modelInfo{ID: name, Object: "model", OwnedBy: "tollgate"} }
	var v any
	if c.endpoint.Object == "" {
		list := modelList{Object: "list", Data: []modelInfo{}}
		for _, name := range c.policy.routes.Visible(c.caller.access) {
			list.Data = append(list.Data, info(name))
		}
		v = list
	} else {
		name, err := url.PathUnescape(c.endpoint.Object)
		if err != nil {
			return c.refuse(&refusal.Refusal{Reason: refusal.UnknownModel})
		}
		if _, refused := c.policy.routes.Resolve(c.caller.access, name); refused != nil {
			return c.refuse(refused)
		}
		v = info(name)
	}
	body, err := json.Marshal(v)
	if err != nil {
		c.gate.log.Error("list of models cannot be encoded", "error", err)
		return c.Fail()
	}
	return &Reply{Status: 200, Body: body, Details: "tollgate_models", Header: [][2]string{
		{"content-type", "application/json"}, {"cache-control", "private, no-store"}, {"x-tollgate-request-id", c.id},
	}}
}
