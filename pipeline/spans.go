package pipeline

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// maxLinks bounds the links of a span: each of 64 requests that share a trip would name the 63 others.
const maxLinks = 16

// export makes the spans of a trip that is over: one for each request that waited for it, in that request's own trace,
// with links to the others; one without a parent for a trip that nobody waited for. Names and attributes are those of
// OpenTelemetry's semantic conventions for Redis, and tollgate.* beside them.
func (r *record) export(cmds []redis.Cmder) {
	end := trace.WithTimestamp(r.trip.At.Add(r.trip.Duration()))
	name, attrs := r.attributes(cmds)
	if r.shares == nil {
		links := make([]trace.Link, 0, len(r.writes))
		for _, w := range r.writes {
			links = appendLink(links, w.span)
		}
		r.start(context.Background(), name, r.trip.At, attrs, links, r.trip.Error).End(end)
		return
	}
	for i, s := range r.shares {
		parent := trace.SpanFromContext(s.ctx)
		if parent.SpanContext().IsValid() && !parent.IsRecording() {
			continue // its request is not sampled
		}
		failure := r.trip.Error
		if err := s.firstError(); failure == "" && err != nil {
			failure = errorText(err)
		}
		own := append(attrs[:len(attrs):len(attrs)],
			attribute.StringSlice("tollgate.trip.owners", s.owners()),
			attribute.Int64("tollgate.trip.queued_ns", r.trip.At.Sub(s.since).Nanoseconds()))
		r.start(s.ctx, name, s.since, own, r.others(i), failure).End(end)
	}
}

func (r *record) start(ctx context.Context, name string, at time.Time, attrs []attribute.KeyValue, links []trace.Link, failure string) trace.Span {
	_, span := r.tracer.spans.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(at),
		trace.WithAttributes(attrs...), trace.WithLinks(links...))
	switch {
	case r.trip.Late:
		span.SetStatus(codes.Error, "late: its callers had gone on")
		span.SetAttributes(attribute.String("error.type", "late"))
	case r.trip.Error != "":
		span.SetStatus(codes.Error, failure)
		span.SetAttributes(attribute.String("error.type", "unavailable"))
	case failure != "":
		code, _, _ := strings.Cut(failure, " ")
		span.SetStatus(codes.Error, failure)
		span.SetAttributes(attribute.String("error.type", code), attribute.String("db.response.status_code", code))
	}
	return span
}

// others are links to the requests that share a trip with the i-th.
func (r *record) others(i int) []trace.Link {
	var links []trace.Link
	for j := 1; j < len(r.shares) && len(links) < maxLinks; j++ { // those after it first, so that all are linked to
		sc := trace.SpanContextFromContext(r.shares[(i+j)%len(r.shares)].ctx)
		links = appendLink(links, &sc)
	}
	return links
}

func appendLink(links []trace.Link, to *trace.SpanContext) []trace.Link {
	if to == nil || !to.IsSampled() || len(links) == maxLinks {
		return links
	}
	return append(links, trace.Link{SpanContext: *to})
}

// attributes are what all spans of a trip have in common. No keys: they name tenants.
func (r *record) attributes(cmds []redis.Cmder) (name string, list []attribute.KeyValue) {
	name = operation(cmds)
	list = make([]attribute.KeyValue, 0, 12)
	list = append(list, attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", name))
	if len(cmds) > 1 { // the conventions: never 1
		list = append(list, attribute.Int("db.operation.batch.size", len(cmds)))
	}
	host, port, err := net.SplitHostPort(r.trip.Server)
	if err != nil {
		host = r.trip.Server
	}
	list = append(list, attribute.String("server.address", host))
	if n, err := strconv.Atoi(port); err == nil {
		list = append(list, attribute.Int("server.port", n))
	}
	return name, append(list,
		attribute.String("tollgate.trip.kind", string(r.trip.Kind)),
		attribute.Int("tollgate.trip.batches", r.trip.Batches),
		attribute.Int64("tollgate.trip.bytes_sent", r.trip.Sent),
		attribute.Int64("tollgate.trip.bytes_received", r.trip.Received))
}

// operation is the command, or PIPELINE for several; with the command behind it when all are the same.
func operation(cmds []redis.Cmder) string {
	first := strings.ToUpper(cmds[0].Name())
	if len(cmds) == 1 {
		return first
	}
	for _, c := range cmds {
		if c.Name() != cmds[0].Name() {
			return "PIPELINE"
		}
	}
	return "PIPELINE " + first
}

// owners are the components that asked for something in the share.
func (s *share) owners() []string {
	var list []string
next:
	for _, d := range s.list {
		for _, o := range list {
			if o == d.owner {
				continue next
			}
		}
		list = append(list, d.owner)
	}
	return list
}

// firstError is that of the share's own commands.
func (s *share) firstError() error {
	for _, d := range s.list {
		if err := failed(d.cmd); err != nil {
			return err
		}
	}
	return nil
}
