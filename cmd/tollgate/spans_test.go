package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/tollgate-proxy/tollgate/extproc/envoysim"
	"github.com/tollgate-proxy/tollgate/governance/config"
)

// receiverOf is a receiver of spans by OTLP over gRPC.
type receiverOf struct {
	collector.UnimplementedTraceServiceServer
	url string

	mu       sync.Mutex
	spans    []*otlp.Span
	resource map[string]any
	header   metadata.MD
}

func newReceiver(t *testing.T) *receiverOf {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiverOf{url: "http://" + l.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return r
}

// Export implements the service.
func (r *receiverOf) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.header, _ = metadata.FromIncomingContext(ctx)
	for _, rs := range req.GetResourceSpans() {
		r.resource = values(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// below are the spans with a parent, in order of their names.
func (r *receiverOf) below(parent []byte) []*otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*otlp.Span
	for _, s := range r.spans {
		if string(s.GetParentSpanId()) == string(parent) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *otlp.Span) int { return strings.Compare(a.GetName(), b.GetName()) })
	return list
}

func values(list []*common.KeyValue) map[string]any {
	m := map[string]any{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			m[kv.GetKey()] = v.IntValue
		case *common.AnyValue_BoolValue:
			m[kv.GetKey()] = v.BoolValue
		case *common.AnyValue_ArrayValue:
			var texts []string
			for _, e := range v.ArrayValue.GetValues() {
				texts = append(texts, e.GetStringValue())
			}
			m[kv.GetKey()] = texts
		default:
			m[kv.GetKey()] = fmt.Sprint(v)
		}
	}
	return m
}

const spansSecret = "sk-spans"

// spansConfig has a key with a limit and a deployment, and sends spans.
func spansConfig(to string) *config.Config {
	cfg := config.Default()
	cfg.Tracing = &config.Tracing{OTLP: to}
	price := int64(1_000_000_000)
	cfg.Models = []config.Model{{Name: "m", Strategy: "usage", Deployments: []config.Deployment{{
		Name: "d", URL: "http://127.0.0.1:1/v1", Dialect: "openai", Provider: "acme", Weight: 1, Order: 1,
		Price: &config.Price{Input: &price, Output: &price},
	}}}}
	sum := sha256.Sum256([]byte(spansSecret))
	cfg.Keys = []config.Key{{ID: "k", SecretSHA256: hex.EncodeToString(sum[:]), Scope: config.Scope{Limits: config.Limits{
		Parallel: &config.Rate{Limit: 100},
	}}}}
	return cfg
}

// spansApp is an app on the embedded store. stop ends it, which sends what is left; it may be called again.
func spansApp(t *testing.T, cfg *config.Config) (a *app, log *syncBuffer, stop func()) {
	t.Helper()
	log = new(syncBuffer)
	a, err := newApp(cfg, addresses{extproc: "127.0.0.1:0"}, newLog(log, cfg.Log))
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := a.shutdown(5 * time.Second); err != nil {
			t.Errorf("shutdown: %v\n%s", err, log)
		}
	})
	t.Cleanup(stop)
	return a, log, stop
}

// exchange sends one chat through the filter, as Envoy would. It returns the status that the client gets.
func exchange(t *testing.T, ctx context.Context, a *app, model string, header ...[2]string) int {
	t.Helper()
	conn, err := grpc.NewClient(a.bound["extproc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	got, err := envoysim.Exchange(ctx, extprocv3.NewExternalProcessorClient(conn), envoysim.Request{
		Method: "POST", Path: "/v1/chat/completions?key=in-the-query", Header: append([][2]string{{"authorization", "Bearer " + spansSecret}}, header...),
		Body: []byte(`{"model":"` + model + `","max_tokens":10,"messages":[{"role":"user","content":"a private word"}]}`),
	}, func(*envoysim.Request) *envoysim.Answer {
		return &envoysim.Answer{Status: 200, Header: [][2]string{{"content-type", "application/json"}}, Pieces: [][]byte{
			[]byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"a private answer"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}`),
		}}
	})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status
}

// One governed request is a span in the client's trace, with its trip to Redis below it; the trip that settles it is a
// span of its own that links to it. Envoy's own span, where it names one, stands between. A refusal is a span too.
func TestSpansOfARequest(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	a, _, stop := spansApp(t, spansConfig(r.url))
	traceID, client, envoy := strings.Repeat("1a", 16), strings.Repeat("2b", 8), strings.Repeat("3c", 8)
	traceparent := [2]string{"traceparent", "00-" + traceID + "-" + client + "-01"}
	if code := exchange(t, t.Context(), a, "m", traceparent); code != 200 {
		t.Fatalf("status %d", code)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-"+envoy+"-01")
	if code := exchange(t, ctx, a, "nobody-has-it", traceparent); code != 403 && code != 404 {
		t.Fatalf("status %d", code)
	}
	stop()
	for _, s := range r.spans {
		if text := s.String(); strings.Contains(text, "private") || strings.Contains(text, spansSecret) || strings.Contains(text, "in-the-query") {
			t.Errorf("a body or a secret in %s", text)
		}
	}
	if r.resource["service.name"] != "tollgate" {
		t.Errorf("resource: %v", r.resource)
	}

	parent := func(text string) []byte { b, _ := hex.DecodeString(text); return b }
	requests := r.below(parent(client))
	if len(requests) != 1 {
		t.Fatalf("%d spans below the client's", len(requests))
	}
	request := requests[0]
	got := values(request.GetAttributes())
	if len(got["tollgate.request.id"].(string)) != 36 {
		t.Errorf("request id %v", got["tollgate.request.id"])
	}
	delete(got, "tollgate.request.id")
	want := map[string]any{
		"tollgate.endpoint": "chat", "tollgate.outcome": "complete", "tollgate.key.id": "k", "tollgate.trips": int64(1),
		"tollgate.deployment": "d", "tollgate.stream": false, "tollgate.usage.estimated": false,
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.provider.name": "acme",
		"gen_ai.usage.input_tokens": int64(5), "gen_ai.usage.output_tokens": int64(7), "http.response.status_code": int64(200),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if request.GetName() != "chat m" || request.GetKind() != otlp.Span_SPAN_KIND_SERVER || hex.EncodeToString(request.GetTraceId()) != traceID || request.GetStatus().GetCode() != otlp.Status_STATUS_CODE_UNSET {
		t.Errorf("request: %v", request)
	}
	r.checkTrips(t, request, a)

	refused := r.below(parent(envoy))
	if len(refused) != 1 {
		t.Fatalf("%d spans below envoy's", len(refused))
	}
	got = values(refused[0].GetAttributes())
	if refused[0].GetName() != "chat" || hex.EncodeToString(refused[0].GetTraceId()) != traceID || got["tollgate.outcome"] != "refused" ||
		got["tollgate.refusal"] != "model_not_found" || got["http.response.status_code"] != int64(404) || got["tollgate.trips"] != int64(0) {
		t.Errorf("refused: %v", refused[0])
	}
}

// checkTrips looks at the trips of a request: one below it, and one that settles it.
func (r *receiverOf) checkTrips(t *testing.T, request *otlp.Span, a *app) {
	t.Helper()
	trips := r.below(request.GetSpanId())
	if len(trips) == 0 {
		t.Fatal("no trip below the request")
	}
	trip := trips[len(trips)-1]
	got := values(trip.GetAttributes())
	host, port, _ := net.SplitHostPort(a.backend.Nodes()[0].Addr)
	if got["db.system.name"] != "redis" || got["server.address"] != host || fmt.Sprint(got["server.port"]) != port || got["tollgate.trip.batches"] != int64(1) ||
		!cmp.Equal(got["tollgate.trip.owners"], []string{"limit"}) || trip.GetKind() != otlp.Span_SPAN_KIND_CLIENT {
		t.Errorf("trip: %v", trip)
	}
	settled := 0
	for _, s := range r.below(nil) {
		for _, l := range s.GetLinks() {
			if string(l.GetSpanId()) == string(request.GetSpanId()) && string(l.GetTraceId()) == string(request.GetTraceId()) {
				settled++
				if values(s.GetAttributes())["tollgate.trip.kind"] != "deferred" {
					t.Errorf("a trip that links to the request: %v", s)
				}
			}
		}
	}
	if settled != 1 {
		t.Errorf("%d trips link to the request, want the one that settles it", settled)
	}
}

// A receiver that is away costs requests nothing, is told of once, and holds up the end for a bounded time.
func TestSpansReceiverAway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := "http://" + l.Addr().String()
	_ = l.Close()
	a, log, stop := spansApp(t, spansConfig(away))
	for range 3 {
		if code := exchange(t, t.Context(), a, "m"); code != 200 {
			t.Errorf("status %d", code)
		}
	}
	begin := time.Now()
	stop()
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the end took %s", took)
	}
	if text := log.String(); !strings.Contains(text, "the last spans may not have been received") {
		t.Errorf("nothing is said:\n%s", text)
	}
}

// failing is an exporter that never succeeds.
type failing struct{ sdktrace.SpanExporter }

func (failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("nobody is there")
}

// However often an export fails, the log says so once in a minute, and the SDK, which would print it, does not hear of it.
func TestSpansFailureIsToldSeldom(t *testing.T) {
	t.Parallel()
	log := new(syncBuffer)
	s := &seldomFailing{SpanExporter: failing{}, log: newLog(log, config.Default().Log)}
	tell := func(want int) {
		t.Helper()
		for range 5 {
			if err := s.ExportSpans(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
		if n := strings.Count(log.String(), "nobody is there"); n != want {
			t.Errorf("said %d times, want %d:\n%s", n, want, log)
		}
	}
	tell(1)
	if left := time.Until(time.Unix(0, s.next.Load())); left > time.Minute || left < 50*time.Second {
		t.Errorf("the next in %s", left)
	}
	s.next.Store(time.Now().UnixNano())
	tell(2)
}

// The variables of OpenTelemetry count: the endpoint when the key says only "on", headers, the service's name, its
// attributes and the sampler.
func TestSpansByVariables(t *testing.T) {
	r := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.url)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme")
	t.Setenv("OTEL_SERVICE_NAME", "gateway-eu")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	send := func() {
		a, _, stop := spansApp(t, spansConfig(config.TracingOn))
		if code := exchange(t, t.Context(), a, "m"); code != 200 {
			t.Errorf("status %d", code)
		}
		stop()
	}
	send()
	if len(r.below(nil)) < 2 || r.resource["service.name"] != "gateway-eu" || r.resource["deployment.environment.name"] != "test" || !slices.Equal(r.header.Get("x-tenant"), []string{"acme"}) {
		t.Errorf("%d spans, resource %v, headers %v", len(r.below(nil)), r.resource, r.header)
	}
	r.spans = nil
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	send()
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	t.Setenv("OTEL_SDK_DISABLED", "true")
	send()
	if len(r.spans) != 0 {
		t.Errorf("%d spans although none are to be sent", len(r.spans))
	}
}
