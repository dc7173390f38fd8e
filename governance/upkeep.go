package governance

import (
	"context"
	"time"
)

// upkeep renews leases, keeps count of the live replicas and watches Redis' memory until ctx ends. loaded says whether the
// scripts are in Redis.
func (g *Gate) upkeep(ctx context.Context, loaded bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	g.lookForRoom(ctx)
	answering := true
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		is := g.backend.Answering()
		back := is && !answering // after an outage every lease is renewed at once: Redis may have lost them
		answering = is
		if back || !loaded {
			loaded = g.load(ctx)
		}
		if n%roomEvery == roomEvery-1 {
			g.lookForRoom(ctx)
		}
		g.limiter.Renew(g.deferred, back)
		if n%10 == 0 || back || !is { // while nobody else asks, this is what finds out that it is back
			if live, err := g.limiter.Replicas(ctx, g.backend, g.deferred.Writer()); err == nil {
				g.replicas.Store(live)
			}
		}
	}
}

// load brings the scripts into Redis.
func (g *Gate) load(ctx context.Context) bool {
	if g.rows != nil && g.rows.Load(ctx) != nil {
		return false
	}
	return g.limiter.Load(ctx, g.backend) == nil
}
