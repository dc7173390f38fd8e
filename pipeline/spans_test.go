package pipeline

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// recorded is a backend whose spans are recorded.
func recorded(t *testing.T, server *redistest.Server, sampler sdktrace.Sampler) (*Backend, *Tracer, *tracetest.SpanRecorder, trace.Tracer) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	made := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sampler)).Tracer("test")
	tracer := NewTracer(32)
	tracer.Export(made)
	b, err := Open(Options{URL: server.URL(), Deadline: 10 * time.Second, Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, tracer, spans, made
}

// attributes are a span's, but for those that hold a time.
func attributes(s sdktrace.ReadOnlySpan) map[string]any {
	m := map[string]any{}
	for _, a := range s.Attributes() {
		if a.Key != "tollgate.trip.queued_ns" {
			m[string(a.Key)] = a.Value.AsInterface()
		}
	}
	return m
}

// common are the attributes of every trip to a server.
func common(t *testing.T, server *redistest.Server, kind Kind, more map[string]any) map[string]any {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{"db.system.name": "redis", "server.address": host, "server.port": n, "tollgate.trip.kind": string(kind)}
	for k, v := range more {
		m[k] = v
	}
	return m
}

// Three requests that gather behind four trips under way share the next: its trip names all of them, and each has a span
// of its own in its own trace, with links to the two others.
func TestSharedTripIsEachOnesSpan(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, tracer, spans, made := recorded(t, server, sdktrace.AlwaysSample())
	b.keepLate = true // so that sending does not wait
	server.Pause()
	var handles []Handle[any]
	ask := func(ctx context.Context, caller string, list ...[]any) {
		batch := b.Batch(caller)
		for _, args := range list {
			handles = append(handles, Declare(batch, "o", Raw, args...))
		}
		batch.send(ctx)
	}
	for i := range nearSenders {
		ask(t.Context(), fmt.Sprint("first", i), []any{"PING"})
	}
	var parents []trace.SpanContext
	for i := range 3 {
		ctx, span := made.Start(t.Context(), "request")
		parents = append(parents, span.SpanContext())
		ask(ctx, fmt.Sprint("r", i), []any{"SET", "k", "v"}, []any{"HGETALL", "k"})
	}
	time.Sleep(20 * time.Millisecond)
	server.Resume()
	for _, h := range handles {
		_, _ = h.Get(t.Context()) // HGETALL fails
	}
	var shared []Trip
	for _, trip := range tracer.Trips() {
		if trip.Batches > 1 {
			shared = append(shared, trip)
		}
	}
	if len(shared) != 1 || !cmp.Equal(shared[0].Callers, []string{"r0", "r1", "r2"}) || shared[0].Queued < 20e6 {
		t.Fatalf("shared trips: %+v", shared)
	}
	wrong := "WRONGTYPE Operation against a key holding the wrong kind of value"
	want := common(t, server, KindRequest, map[string]any{
		"db.operation.name": "PIPELINE", "db.operation.batch.size": int64(6), "tollgate.trip.batches": int64(3),
		"tollgate.trip.owners": []string{"o"}, "tollgate.trip.bytes_sent": int64(3 * len("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*2\r\n$7\r\nHGETALL\r\n$1\r\nk\r\n")),
		"tollgate.trip.bytes_received": int64(3 * (5 + len(wrong) + 3)),
		"error.type":                   "WRONGTYPE", "db.response.status_code": "WRONGTYPE",
	})
	for i, parent := range parents {
		found := 0
		for _, s := range spans.Ended() {
			if s.Parent().SpanID() != parent.SpanID() {
				continue
			}
			found++
			if s.Name() != "PIPELINE" || s.SpanKind() != trace.SpanKindClient || s.SpanContext().TraceID() != parent.TraceID() || s.Status().Code != codes.Error || s.Status().Description != wrong {
				t.Errorf("span of r%d: %s %s %+v %+v", i, s.Name(), s.SpanKind(), s.SpanContext(), s.Status())
			}
			if diff := cmp.Diff(want, attributes(s)); diff != "" {
				t.Errorf("attributes of r%d (-want +got):\n%s", i, diff)
			}
			links := s.Links()
			if len(links) != 2 || !links[0].SpanContext.Equal(parents[(i+1)%3]) || !links[1].SpanContext.Equal(parents[(i+2)%3]) {
				t.Errorf("links of r%d: %+v", i, links)
			}
			if s.EndTime().Sub(s.StartTime()) < 20*time.Millisecond {
				t.Errorf("the span of r%d leaves out its wait for a turn", i)
			}
		}
		if found != 1 {
			t.Errorf("r%d has %d spans", i, found)
		}
	}
}

// A deferred trip is a span without a parent that links to the requests whose writes it carries.
func TestDeferredTripIsASpan(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, _, spans, made := recorded(t, server, sdktrace.AlwaysSample())
	d := NewDeferred(b, DeferredOptions{})
	ctx, request := made.Start(t.Context(), "request")
	w := d.Writes()
	w.For(ctx, "r1")
	w.Do("cache", "SET", "a", "1")
	w.Close()
	if left, _ := d.Drain(t.Context()); left != 0 {
		t.Fatalf("%d left", left)
	}
	list := spans.Ended()
	if len(list) != 1 || list[0].Parent().IsValid() || list[0].Name() != "SET" || len(list[0].Links()) != 1 ||
		!list[0].Links()[0].SpanContext.Equal(request.SpanContext()) || list[0].Status().Code != codes.Unset {
		t.Fatalf("spans: %+v", list)
	}
	want := common(t, server, KindDeferred, map[string]any{
		"db.operation.name": "SET", "tollgate.trip.batches": int64(1),
		"tollgate.trip.bytes_sent": int64(27), "tollgate.trip.bytes_received": int64(5),
	})
	if diff := cmp.Diff(want, attributes(list[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A request that is not sampled has no spans, and a trip that it shares is no new trace.
func TestUnsampledRequestHasNoSpans(t *testing.T) {
	t.Parallel()
	b, tracer, spans, _ := recorded(t, redistest.Start(t), sdktrace.ParentBased(sdktrace.AlwaysSample()))
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true})
	ctx := trace.ContextWithSpanContext(t.Context(), parent)
	if _, err := Declare(b.Batch("r"), "o", Raw, "PING").Get(ctx); err != nil {
		t.Fatal(err)
	}
	if len(tracer.Trips()) != 1 || len(spans.Ended()) != 0 {
		t.Errorf("%d trips, %d spans", len(tracer.Trips()), len(spans.Ended()))
	}
}
