package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

const (
	// spansFlush bounds how long the end of the process waits for the receiver.
	spansFlush = 2 * time.Second
	// spansQuiet is how long the log is silent about a receiver that is away, once it has said so.
	spansQuiet = time.Minute
)

// spans sends OpenTelemetry spans. They wait in a bounded queue and leave in batches; what has no room is dropped, so
// that a receiver that is away costs requests nothing.
//
// The SDK reads the variables by itself: OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_SPAN_* and, for the way to the receiver,
// OTEL_EXPORTER_OTLP_* and OTEL_EXPORTER_OTLP_TRACES_*. Read here are OTEL_SDK_DISABLED, which it leaves to others, and
// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, because the service has a name of its own.
type spans struct {
	provider *sdktrace.TracerProvider
	log      *slog.Logger
}

// newSpans makes what the configuration asks for; nil when that is nothing. It does no I/O.
func newSpans(cfg *config.Tracing, log *slog.Logger) (*spans, error) {
	if cfg == nil || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	ctx := context.Background()
	exporter, err := otlptracegrpc.New(ctx, receiver(cfg)...)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "tollgate")), resource.WithFromEnv()) // the last word is the environment's
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(&seldomFailing{SpanExporter: exporter, log: log}))
	return &spans{provider: provider, log: log}, nil
}

// receiver is where the spans go: the URL of the configuration, or what the variables name, or else what OpenTelemetry's
// specification has for both unset. The exporter's own default is that address with TLS.
func receiver(cfg *config.Tracing) []otlptracegrpc.Option {
	switch {
	case cfg.OTLP != config.TracingOn:
		return []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(cfg.OTLP)}
	case cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) == "":
		return []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL("http://localhost:4317")}
	}
	return nil
}

// tracer is that of one package.
func (s *spans) tracer(name string) trace.Tracer {
	return s.provider.Tracer("github.com/tollgate-proxy/tollgate/" + name)
}

// close sends what is left, within a bound. A nil spans has nothing.
func (s *spans) close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), spansFlush)
	defer cancel()
	if err := s.provider.Shutdown(ctx); err != nil {
		s.log.Warn("the last spans may not have been received", "error", err)
	}
}

// seldomFailing tells the log of an exporter's failures, at most once a minute, and nobody else.
type seldomFailing struct {
	sdktrace.SpanExporter
	log  *slog.Logger
	next atomic.Int64 // when the next may be told, in unix nanoseconds
}

// ExportSpans implements sdktrace.SpanExporter.
func (s *seldomFailing) ExportSpans(ctx context.Context, list []sdktrace.ReadOnlySpan) error {
	if err := s.SpanExporter.ExportSpans(ctx, list); err != nil {
		now, next := time.Now(), s.next.Load()
		if now.UnixNano() >= next && s.next.CompareAndSwap(next, now.Add(spansQuiet).UnixNano()) {
			s.log.Warn("spans were not received; this is said once a minute", "spans", len(list), "error", err)
		}
	}
	return nil
}
