package governance

import (
	"context"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

const (
	// fullAt is how much of maxmemory may be used, in percent, before the cache stops writing to the counters' Redis. What
	// is left is for the counters: they are never evicted, and without room for them no request can be admitted.
	fullAt = 80
	// roomEvery is how often that is looked at, in seconds.
	roomEvery = 5
)

// lookForRoom finds out whether the cache may write. While a server does not tell, what was found last stands, unless
// another is full.
func (g *Gate) lookForRoom(ctx context.Context) {
	if g.backend.Embedded() || !g.backend.SharesMemory(g.store) {
		return
	}
	list, err := g.backend.Memory(ctx)
	m, full := fullest(list)
	if !full && err != nil || g.full.Swap(full) == full {
		return
	}
	if full {
		g.log.Warn("answers are not stored: the Redis that the cache shares with the counters is nearly full",
			"used_memory", m.Used, "maxmemory", m.Max, "limit_percent", fullAt)
		return
	}
	g.log.Info("answers are stored again: the Redis that the cache shares with the counters has room")
}

// fullest is a server that leaves the cache no room, if there is one.
func fullest(list []pipeline.Memory) (m pipeline.Memory, full bool) {
	for _, m := range list {
		if m.Max > 0 && m.Used*100 >= m.Max*fullAt {
			return m, true
		}
	}
	return pipeline.Memory{}, false
}
