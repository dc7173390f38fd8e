package pipeline_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// BenchmarkSharing is what a batch of three commands costs when each caller has a pipeline and a connection of its own
// (alone), through go-redis' AutoPipeline in full duplex (auto), and through a Backend, which shares trips (shared). The
// table in the package's doc is one run of it.
//
// AutoPipeline is here for its speed only: it sends again what may have been executed.
func BenchmarkSharing(b *testing.B) {
	server := redistest.Start(b)
	proxy := redistest.NewProxy(b, server.Addr())
	for _, rtt := range []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond} {
		addr := server.Addr()
		if rtt > 0 {
			addr = proxy.Addr()
			proxy.Delay(rtt)
		}
		for _, callers := range []int{1, 16, 128, 512} {
			for _, way := range []struct {
				name string
				open func(testing.TB, string, int) func(context.Context) error
			}{{"alone", alone}, {"auto", auto}, {"shared", shared}} {
				b.Run(fmt.Sprintf("rtt=%s/callers=%d/%s", rtt, callers, way.name), func(b *testing.B) {
					ask := way.open(b, addr, callers)
					spread(b, callers, 1, ask) // warm connections
					b.ReportAllocs()
					b.ResetTimer()
					spread(b, callers, b.N, ask)
				})
			}
		}
	}
}

// spread lets callers share n calls, at least one each.
func spread(b *testing.B, callers, n int, ask func(context.Context) error) {
	var left atomic.Int64
	left.Store(int64(max(n, callers)))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := ask(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func alone(t testing.TB, addr string, callers int) func(context.Context) error {
	client := redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: callers, PipelinePoolSize: -1,
	})
	t.Cleanup(func() { _ = client.Close() })
	return func(ctx context.Context) error {
		p := client.Pipeline()
		p.Set(ctx, "x", "1", 0)
		p.Exists(ctx, "y")
		p.Get(ctx, "x")
		_, err := p.Exec(ctx)
		return err
	}
}

func auto(t testing.TB, addr string, _ int) func(context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	p, err := client.AsyncAutoPipelineWithOptions(&redis.AutoPipelineOptions{FullDuplex: true})
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) error {
		set, exists, get := p.Set(ctx, "x", "1", 0), p.Exists(ctx, "y"), p.Get(ctx, "x")
		if err := set.Err(); err != nil {
			return err
		}
		if err := exists.Err(); err != nil {
			return err
		}
		return get.Err()
	}
}

func shared(t testing.TB, addr string, _ int) func(context.Context) error {
	backend, err := pipeline.Open(pipeline.Options{URL: "redis://" + addr, Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	return func(ctx context.Context) error {
		batch := backend.Batch("bench")
		pipeline.Declare(batch, "o", pipeline.Raw, "SET", "x", "1")
		pipeline.Declare(batch, "o", pipeline.Raw, "EXISTS", "y")
		_, err := pipeline.Declare(batch, "o", pipeline.Bytes, "GET", "x").Get(ctx)
		return err
	}
}
