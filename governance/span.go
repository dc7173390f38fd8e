package governance

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/ledger"
)

// carrier lets OpenTelemetry read the headers of a request. Several of one name are one list, which no traceparent is.
type carrier struct{ identity.Headers }

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(name string) string { return strings.Join(c.Values(name), ",") }

// Set implements propagation.TextMapCarrier: nothing is sent on.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier: nobody asks for names that are not known.
func (carrier) Keys() []string { return nil }

// startSpan begins the call's span, when spans are made: below Envoy's, or the client's, or on its own.
func (c *Call) startSpan() {
	if c.gate.spans == nil {
		return
	}
	name := c.endpoint.Name
	if name == "" {
		name = "unknown endpoint" // never the path: a client can choose any
	}
	_, c.span = c.gate.spans.Start(c.head.parent(), name, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.began),
		trace.WithAttributes(attribute.String("tollgate.request.id", c.id), attribute.String("tollgate.endpoint", c.endpoint.Name)))
}

// parent is a context with the span that the request belongs to: the one of Envoy, which is nearer, or the client's.
func (h Head) parent() context.Context {
	for _, from := range []identity.Headers{h.Metadata, h.Headers} {
		if from == nil {
			continue
		}
		ctx := propagation.TraceContext{}.Extract(context.Background(), carrier{from})
		if trace.SpanContextFromContext(ctx).IsValid() {
			return ctx
		}
	}
	return context.Background()
}

// traced is a context in which trips to Redis find the call's span.
func (c *Call) traced(ctx context.Context) context.Context {
	if c.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, c.span)
}

// traceRecord tells the span what an admitted call came to.
func (c *Call) traceRecord(r *ledger.Record) {
	if c.span == nil || !c.span.IsRecording() {
		return
	}
	c.span.SetAttributes(
		attribute.String("tollgate.outcome", string(r.Outcome)),
		attribute.Bool("tollgate.stream", r.Stream),
		attribute.Bool("tollgate.usage.estimated", r.Estimated),
		attribute.Int64("gen_ai.usage.input_tokens", r.Input),
		attribute.Int64("gen_ai.usage.output_tokens", r.Output),
	)
	if r.Deployment != "" {
		c.span.SetAttributes(attribute.String("tollgate.deployment", r.Deployment), attribute.String("gen_ai.provider.name", r.Provider))
	}
	c.traceStatus(r.Status)
	if r.Outcome == ledger.Failed {
		c.traceFailure(string(r.Outcome))
	}
}

// endSpan ends the call's span.
func (c *Call) endSpan() {
	if c.span == nil {
		return
	}
	defer c.span.End()
	if !c.span.IsRecording() {
		return
	}
	c.span.SetAttributes(attribute.Int("tollgate.trips", c.trips))
	if c.caller != nil {
		c.span.SetAttributes(attribute.String("tollgate.key.id", c.caller.key.ID))
	}
	if c.target.Name != "" { // one that is configured: what else a client asks for is anybody's guess
		c.span.SetName(c.endpoint.Name + " " + c.target.Name)
		c.span.SetAttributes(attribute.String("gen_ai.operation.name", c.endpoint.Name), attribute.String("gen_ai.request.model", c.target.Name))
	}
	switch {
	case c.reply != nil && c.reply.Status < 400:
		c.traceStatus(c.reply.Status)
		c.span.SetAttributes(attribute.String("tollgate.outcome", "answered"))
	case c.reply != nil:
		reason := strings.TrimPrefix(c.reply.Details, "tollgate_")
		c.span.SetAttributes(attribute.String("tollgate.outcome", "refused"), attribute.String("tollgate.refusal", reason))
		c.traceStatus(c.reply.Status)
		if c.reply.Status >= 500 {
			c.traceFailure(reason)
		}
	case c.grant == nil:
		c.span.SetAttributes(attribute.String("tollgate.outcome", string(ledger.Abandoned)))
	}
}

func (c *Call) traceStatus(status int) {
	if status != 0 {
		c.span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
}

func (c *Call) traceFailure(why string) {
	c.span.SetStatus(codes.Error, why)
	c.span.SetAttributes(attribute.String("error.type", why))
}
