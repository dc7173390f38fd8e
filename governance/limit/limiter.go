package limit

import (
	"context"
	_ "embed"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

var (
	//go:embed admit.lua
	admitSource string
	//go:embed settle.lua
	settleSource string
	//go:embed renew.lua
	renewSource string

	admitScript  = pipeline.NewScript("admit", admitSource)
	settleScript = pipeline.NewOnce("settle", settleSource)
	renewScript  = pipeline.NewScript("renew", renewSource)
)

// The life of a lease, and how often the process that holds it renews it.
const (
	leaseTime  = 30 * time.Second
	renewEvery = 10 * time.Second
)

// Limiter reserves and settles on one Redis. It is safe for concurrent use.
type Limiter struct {
	prefix    string
	clustered bool         // what has one home is one script
	streamMax int64        // records in each spend stream
	offset    atomic.Int64 // Redis' clock minus this process', in ns, as the last reply showed it
	holder    holder
	found     func([]Lost)
	now       func() time.Time
	pause     func(time.Duration) // tests set it
	clock     func() int64        // tests set it: unix ms that stand for the server's clock
}

// Options of a Limiter.
type Options struct {
	Prefix string
	// StreamMax is how many spend records Redis keeps, all streams together.
	StreamMax int64
	// Clustered splits what a request admits, renews and settles by the home of its scopes, one script each, for a Redis
	// Cluster keeps each home on one server of its own and runs no script over several. Else one script does all.
	Clustered bool
	// Found is told of leases that a reply found run out which came too late for its request; nil: nobody is. It is called
	// on a goroutine of the pipeline.
	Found func([]Lost)
	Now   func() time.Time // nil: time.Now
}

// New makes a limiter.
func New(opt Options) *Limiter {
	l := &Limiter{prefix: opt.Prefix, clustered: opt.Clustered, streamMax: max(opt.StreamMax/streams, 1), found: opt.Found, now: opt.Now, pause: time.Sleep}
	if l.now == nil {
		l.now = time.Now
	}
	l.holder.grants = map[*Grant]struct{}{}
	return l
}

func policy(deny bool) string {
	if deny {
		return "deny"
	}
	return "allow"
}

// Load brings the scripts into the server's cache.
func (l *Limiter) Load(ctx context.Context, b *pipeline.Backend) error {
	return b.Load(ctx, admitScript, settleScript, renewScript)
}

// Now is the time by Redis' clock, as far as this process knows it.
func (l *Limiter) Now() time.Time { return l.now().Add(time.Duration(l.offset.Load())) }

// instant is the first argument of scripts that need the time: empty for the server's own clock.
func (l *Limiter) instant() string {
	if l.clock == nil {
		return ""
	}
	return strconv.FormatInt(l.clock(), 10)
}

// observe learns Redis' clock from a reply. A reply is late by up to a trip, so only a real difference counts.
func (l *Limiter) observe(redisMs int64) {
	offset := time.UnixMilli(redisMs).Sub(l.now())
	if d := offset - time.Duration(l.offset.Load()); d > 50*time.Millisecond || d < -50*time.Millisecond {
		l.offset.Store(int64(offset))
	}
}
