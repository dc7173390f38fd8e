package governance

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-proxy/tollgate/governance/cache"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/governance/price"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
	"github.com/tollgate-proxy/tollgate/governance/routing"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// Head is what is known of a request before its body.
type Head struct {
	Method  string
	Path    string // with the query
	Headers Headers
	// Metadata is that of the stream on which the request is shown: Envoy names its own span there, when it traces. Nil:
	// there is none.
	Metadata identity.Headers
}

// Headers are the headers of a message.
type Headers interface {
	identity.Headers
	// Names lists the lower-case names.
	Names() []string
}

// Reply is a whole answer that tollgate gives itself: a refusal, a cached answer, the list of models.
type Reply struct {
	Status  int
	Header  [][2]string
	Body    []byte
	Details string // for Envoy's access log: why
}

// Call is one request from its headers to its settlement. It belongs to one goroutine. Whatever happens to the
// request, End must be called.
type Call struct {
	gate   *Gate
	policy *policy
	id     string
	head   Head
	began  time.Time

	endpoint usage.Endpoint
	caller   *caller
	fresh    freshness
	request  *usage.Request
	controls cache.Controls
	target   routing.Target
	chosen   *upstream
	upModel  string // the name the chosen upstream is asked for
	row      price.Row
	demand   limit.Demand
	cacheKey cache.Key
	caching  bool

	grant    *limit.Grant
	would    string
	trips    int
	released bool // our reply that lets the request go was sent
	void     bool // refused by us after the grant

	answer answer
	cached *cache.Entry // the answer came from here
	ended  bool

	span  trace.Span // nil: spans are off
	reply *Reply     // our own answer; for the span
}

// Begin decides by the headers alone. It returns either a call, whose body is to be shown to Admit, or the whole answer.
// It waits for nothing; a key that memory lacks is looked up from now on.
func (g *Gate) Begin(h Head) (*Call, *Reply) {
	c := &Call{gate: g, policy: g.policy.Load(), id: uuid.Must(uuid.NewV7()).String(), head: h, began: g.now()}
	c.endpoint = usage.FindEndpoint(h.Method, h.Path)
	c.startSpan()
	if !g.begin() {
		reply := c.refuse(&refusal.Refusal{Reason: refusal.Draining})
		c.endSpan()
		return nil, reply
	}
	reply := c.identify()
	if reply == nil && c.endpoint.Name == usage.Models && !c.pending() {
		reply = c.listModels()
	}
	if reply != nil {
		g.end()
		c.reply = reply
		c.endSpan()
		return nil, reply
	}
	return c, nil
}

// identify finds the caller and whether the endpoint is theirs.
func (c *Call) identify() *Reply {
	rules := identity.Rules{KeyHeaders: c.policy.cfg.Auth.KeyHeaders}
	if c.endpoint.Dialect == usage.Gemini {
		_, rules.GeminiQuery, _ = strings.Cut(c.head.Path, "?")
	}
	cred, refused := identity.FindCredential(c.head.Headers, rules)
	if refused != nil {
		return c.refuse(refused)
	}
	key, ok := c.policy.directory.Lookup(cred.Sum)
	if !ok {
		return c.identifyRow(cred.Sum)
	}
	c.caller = c.policy.callers[key]
	return c.permitted()
}

// permitted refuses what the caller may not do, as far as the headers tell.
func (c *Call) permitted() *Reply {
	if refused := c.caller.refused(); refused != nil {
		return c.refuse(refused)
	}
	if refused := c.caller.key.Check(c.began); refused != nil {
		return c.refuse(refused)
	}
	if !c.endpoint.Governed {
		return c.refuse(&refusal.Refusal{Reason: refusal.UnknownEndpoint})
	}
	if refused := routing.EndpointAllowed(c.caller.access, c.endpoint.Name); refused != nil {
		return c.refuse(refused)
	}
	return c.checkBody()
}

// checkBody refuses what the headers already say about the body.
func (c *Call) checkBody() *Reply {
	if enc := first(c.head.Headers, "content-encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return c.refuse(&refusal.Refusal{Reason: refusal.Encoding})
	}
	n, err := strconv.ParseInt(first(c.head.Headers, "content-length"), 10, 64)
	if err == nil && n > c.policy.cfg.Defaults.MaxBody {
		return c.refuse(c.tooLarge())
	}
	return nil
}

func first(h identity.Headers, name string) string {
	if v := h.Values(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// header is a request header by its lower-case name.
func (c *Call) header(name string) string { return first(c.head.Headers, name) }

// TooLarge is the refusal of a body above the limit.
func (c *Call) TooLarge() *Reply { return c.render(c.tooLarge()) }

func (c *Call) tooLarge() *refusal.Refusal {
	return &refusal.Refusal{Reason: refusal.TooLarge, Message: fmt.Sprintf(
		"the request body is too large: at most %d bytes are accepted", c.policy.cfg.Defaults.MaxBody)}
}

// Fail is the refusal of a request that tollgate could not handle.
func (c *Call) Fail() *Reply { return c.render(&refusal.Refusal{Reason: refusal.Internal}) }

// Refuse is the refusal of a request that has no call.
func (g *Gate) Refuse(h Head, r *refusal.Refusal) *Reply {
	c := &Call{
		gate: g, policy: g.policy.Load(), id: uuid.Must(uuid.NewV7()).String(), began: g.now(),
		endpoint: usage.FindEndpoint(h.Method, h.Path),
	}
	return c.refuse(r)
}

// refuse refuses the call, unless its identities may have changed: then it is decided again from fresh ones.
func (c *Call) refuse(r *refusal.Refusal) *Reply {
	if c.fresh.tentative {
		return undecided
	}
	return c.render(r)
}

// render renders a refusal and counts it.
func (c *Call) render(r *refusal.Refusal) *Reply {
	c.gate.metrics.refused(r)
	resp := r.Render(c.endpoint.Dialect, c.id, refusal.Options{BudgetStatus: c.policy.cfg.Errors.BudgetStatus})
	reply := &Reply{Status: resp.Status, Header: resp.Header, Body: resp.Body, Details: "tollgate_" + string(r.Reason)}
	if c.trips > 0 && c.policy.cfg.Debug.TripsHeader {
		reply.Header = append(reply.Header, [2]string{"x-tollgate-trips", strconv.Itoa(c.trips)})
	}
	c.reply = reply
	return reply
}

// Released tells the call that the reply which lets the request go has been sent: from now on the upstream may be
// working.
func (c *Call) Released() { c.released = true }

// End settles the call. It must be called when the stream is over, however it ended; more calls do nothing. It does no
// I/O: what is to be written leaves with the deferred pipeline, whose life is not the stream's.
func (c *Call) End() {
	if c.ended {
		return
	}
	c.ended = true
	defer c.gate.end()
	if c.grant != nil {
		c.settle()
	}
	c.endSpan()
}
