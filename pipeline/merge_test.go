package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// A burst shares trips, each caller gets its own reply, and nobody is refused because others were before it.
func TestConcurrentBatchesShareTrips(t *testing.T) {
	t.Parallel()
	b, proxy, _ := behind(t)
	proxy.Delay(20 * time.Millisecond)
	const callers = 2000
	var wg sync.WaitGroup
	var wrong atomic.Int64
	for i := range callers {
		wg.Go(func() {
			batch := b.Batch(fmt.Sprint(i))
			bad := pipeline.Declare(batch, "bad", pipeline.Raw, "HGETALL", "text") // fails for its owner alone
			set := pipeline.Declare(batch, "set", pipeline.Raw, "SET", fmt.Sprint("k", i), i)
			get := pipeline.Declare(batch, "get", pipeline.Bytes, "GET", fmt.Sprint("k", i))
			v, err := get.Get(t.Context())
			_, setErr := set.Get(t.Context())
			_, badErr := bad.Get(t.Context())
			if err != nil || setErr != nil || string(v) != fmt.Sprint(i) || badErr != nil || batch.Trips() != 1 {
				wrong.Add(1)
			}
		})
	}
	wg.Wait()
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d of %d callers did not get their own replies in one trip", n, callers)
	}
	proxy.WaitQuiet(30 * time.Millisecond)
	if trips := len(proxy.Trips()); trips > callers/10 {
		t.Errorf("%d trips for %d callers", trips, callers)
	}
}

// A server that stops answering fails those whose trip it holds, and after that everybody at once: nobody waits for a turn.
func TestBurstOnAServerThatStopped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	defer server.Resume()
	begin := time.Now()
	var wg sync.WaitGroup
	var other atomic.Int64
	for range 1000 {
		wg.Go(func() {
			if _, err := pipeline.Declare(b.Batch("r"), "o", pipeline.Bytes, "GET", "x").Get(t.Context()); !errors.Is(err, pipeline.ErrUnavailable) {
				other.Add(1)
			}
		})
	}
	wg.Wait()
	if n := other.Load(); n != 0 {
		t.Errorf("%d callers got something else than ErrUnavailable", n)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the last of 1000 waited %s with a deadline of 100ms", took)
	}
}

// BenchmarkTracing is what a trip of three commands costs without a tracer, with one that keeps trips, and with spans that
// a sampler leaves out or that go nowhere.
func BenchmarkTracing(b *testing.B) {
	server := redistest.Start(b)
	kept, unsampled, sampled := pipeline.NewTracer(256), pipeline.NewTracer(256), pipeline.NewTracer(256)
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("")
	always := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter())).Tracer("")
	unsampled.Export(never)
	sampled.Export(always)
	for _, mode := range []struct {
		name   string
		tracer *pipeline.Tracer
		spans  trace.Tracer // of the request
	}{{"trace=off", nil, nil}, {"trace=kept", kept, nil}, {"trace=unsampled", unsampled, never}, {"trace=sampled", sampled, always}} {
		backend, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 5 * time.Second, Tracer: mode.tracer})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = backend.Close() })
		ask := func(ctx context.Context) error {
			if mode.spans != nil {
				var span trace.Span
				ctx, span = mode.spans.Start(ctx, "request")
				defer span.End()
			}
			batch := backend.Batch("bench")
			pipeline.Declare(batch, "o", pipeline.Raw, "SET", "x", "1")
			pipeline.Declare(batch, "o", pipeline.Raw, "GET", "y")
			_, err := pipeline.Declare(batch, "o", pipeline.Bytes, "GET", "x").Get(ctx)
			return err
		}
		for _, callers := range []int{1, 128} {
			b.Run(fmt.Sprintf("%s/callers=%d", mode.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				spread(b, callers, b.N, ask)
			})
		}
	}
}
