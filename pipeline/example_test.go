package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// Three components declare what they need without knowing of each other; one trip brings all the answers.
func ExampleBatch() {
	store, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{}) // or pipeline.Open for a Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	ctx := context.Background()
	visit := pipeline.NewScript("visit", `return redis.call('INCR', KEYS[1])`)
	_ = store.Load(ctx, visit) // without it the first call would take a second trip

	batch := store.Batch("request 7")
	visits := pipeline.Eval(batch, "counter", func(v any) (int64, error) { n, _ := v.(int64); return n, nil },
		visit, []string{"visits"})
	page := pipeline.Declare(batch, "cache", pipeline.Bytes, "GET", "page:7")

	n, err := visits.Get(ctx) // sends everything
	fmt.Println("visits:", n, err)
	_, err = page.Get(ctx) // its own reply: nothing is sent again
	fmt.Println("cached:", !errors.Is(err, pipeline.ErrNil))
	fmt.Println("trips:", batch.Trips())
	// Output:
	// visits: 1 <nil>
	// cached: false
	// trips: 1
}

// What is written afterwards leaves when the batch is closed, and nobody waits for it. A script declared by Once is
// applied exactly once however often its flush is repeated.
func ExampleDeferred() {
	store, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	charge := pipeline.NewOnce("charge", `return redis.call('INCRBY', KEYS[2], ARGV[3])`)
	queue := pipeline.NewDeferred(store, pipeline.DeferredOptions{})

	writes := queue.Writes()
	writes.Once("billing", charge, []string{"last:" + writes.Writer(), "spent"}, 12)
	writes.Do("cache", "SET", "page:7", "hello", "PX", time.Minute.Milliseconds())
	writes.Close() // does no I/O itself

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, lost := queue.Drain(ctx)
	fmt.Println("lost at shutdown:", lost)
	spent, err := pipeline.Declare(store.Batch("audit"), "audit", pipeline.Bytes, "GET", "spent").Get(ctx)
	fmt.Println("spent:", string(spent), err)
	// Output:
	// lost at shutdown: 0
	// spent: 12 <nil>
}
