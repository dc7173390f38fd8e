package limit

import (
	"context"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// replicaLife is how long a process counts as alive after it was last heard of.
const replicaLife = 30 * time.Second

// Replicas says that this process is alive and how many are. Call it every ten seconds.
func (l *Limiter) Replicas(ctx context.Context, b *pipeline.Backend, writer string) (int64, error) {
	key := l.prefix + ":replicas"
	now := l.Now()
	batch := b.Upkeep("replicas")
	none := func(any) (struct{}, error) { return struct{}{}, nil }
	pipeline.Declare(batch, "replicas", none, "ZADD", key, now.UnixMilli(), writer)
	pipeline.Declare(batch, "replicas", none, "ZREMRANGEBYSCORE", key, "-inf", now.Add(-replicaLife).UnixMilli())
	pipeline.Declare(batch, "replicas", none, "PEXPIRE", key, replicaLife.Milliseconds())
	count := pipeline.Declare(batch, "replicas", func(v any) (int64, error) { n, _ := v.(int64); return n, nil }, "ZCARD", key)
	return count.Get(ctx)
}
