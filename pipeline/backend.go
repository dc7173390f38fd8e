package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options says where a Redis is and how it is spoken to.
type Options struct {
	// URL is one of
	//
	//	redis://[user[:password]@]host[:port][/db]                        one server; rediss:// over TLS
	//	redis+cluster://[user[:password]@]host:port,host:port             a Redis Cluster; rediss+cluster:// over TLS
	//	redis+sentinel://[user[:password]@]host:port,host:port/master[/db]  the master that sentinels name; rediss+sentinel://
	//	unix:///path[?db=n]
	//
	// User and password are those of the servers that have keys; sentinels are asked without.
	// Over TLS ?cacert=FILE names the authority to trust in place of the system's, ?cert=FILE&key=FILE the client's
	// certificate.
	URL      string
	Username string // used when the URL has none
	Password string // used when the URL has none
	// Deadline is the longest that a trip waits for the server to answer. Zero means 100 ms.
	Deadline time.Duration
	// Eval sends whole scripts, for servers that forbid EVALSHA.
	Eval bool
	// PoolSize is the greatest number of connections to each server. Zero means 24: a few trips at a time carry all requests.
	PoolSize int
	// MaxValue bounds an argument, in bytes. Zero means 512 MB, what Redis accepts; a larger one costs the connection, so
	// it is refused before it is sent.
	MaxValue int
	// KeepLate reads each trip to its end although its callers have gone on at the deadline; see [Handle.Late]. Without it
	// that is so for a server that has been slow lately, and for trips that several share. It costs a lone caller what it
	// takes to wake it, some microseconds.
	KeepLate bool
	// Tracer sees every trip; nil traces nothing.
	Tracer *Tracer
}

// Backend is one Redis: a server, the master that sentinels name, a cluster, or the in-process store. It is safe for
// concurrent use.
type Backend struct {
	*settings
	target    *target
	one       *node      // nil for a cluster
	cluster   *cluster   // nil for everything else
	sentinels *sentinels // that name the one; nil for everything else
	embedded  *embedded  // nil for a server
}

// Open makes a backend for a server. It does no I/O: a server that is away is found out by the first batch, or by Ping.
func Open(opt Options) (*Backend, error) {
	t, err := parse(opt.URL)
	if err != nil {
		return nil, err
	}
	if t.username == "" {
		t.username = opt.Username
	}
	if t.password == "" {
		t.password = opt.Password
	}
	return open(t, opt, withShebang), nil
}

// quiet keeps go-redis from writing to standard error: each failure reaches whoever asked, and is counted.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

func open(t *target, opt Options, dialect int) *Backend {
	silence()
	s := &settings{deadline: opt.Deadline, maxValue: opt.MaxValue, dialect: dialect, eval: opt.Eval, keepLate: opt.KeepLate, tracer: opt.Tracer}
	if s.deadline <= 0 {
		s.deadline = 100 * time.Millisecond
	}
	if s.maxValue <= 0 {
		s.maxValue = 512 << 20
	}
	size := opt.PoolSize
	if size <= 0 {
		size = poolSize
	}
	dial := dialer(t.tls)
	b := &Backend{settings: s, target: t}
	if t.master != "" {
		b.sentinels = newSentinels(t, dial)
		dial = b.sentinels.dialMaster
	}
	s.connect = func(addr string) *redis.Client {
		o := t.options(addr, dial, size)
		o.PoolTimeout = s.deadline
		return redis.NewClient(o)
	}
	switch {
	case t.cluster:
		b.cluster = newCluster(s, t.hosts)
	case t.master != "":
		b.one = newNode(s, t.master)
		b.sentinels.moved, b.sentinels.differs = b.one.replace, b.one.reconnect
	default:
		b.one = newNode(s, t.hosts[0])
	}
	return b
}

// noNotices turns maintenance notifications off: they need RESP3, and go-redis looks the host up when it makes a client
// with them, for up to two seconds.
func noNotices() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// options are those of the connections to one server. dial opens one.
func (t *target) options(addr string, dial dialFunc, size int) *redis.Options {
	return &redis.Options{
		Network: t.network, Addr: addr, Username: t.username, Password: t.password, DB: t.db,
		Protocol:        2,                                                // pushes are not used
		DisableIdentity: true,                                             // no CLIENT SETINFO: a new connection is ready one trip earlier
		MaxRetries:      -1,                                               // never resend what may have been executed
		Dialer:          dial, DialTimeout: dialTimeout, DialerRetries: 1, // a refused connection is an answer
		ContextTimeoutEnabled: true, ReadTimeout: lastTimeout, WriteTimeout: lastTimeout,
		PoolSize: size, PipelinePoolSize: -1, MaintNotificationsConfig: noNotices(),
	}
}

// poolSize is how many connections a server may need: those of trips, and a few of flushes, probes and upkeep.
const poolSize = maxSenders + maxLate + 4

// lastTimeout bounds reads and writes that no context bounds.
const lastTimeout = 35 * time.Second

// Close closes the connections; batches that are under way fail.
func (b *Backend) Close() error {
	if b.cluster != nil {
		return b.cluster.close()
	}
	if b.sentinels != nil {
		b.sentinels.close()
	}
	err := b.one.close()
	if b.embedded != nil {
		b.embedded.close()
	}
	return err
}

// Embedded says whether this is the in-process store.
func (b *Backend) Embedded() bool { return b.embedded != nil }

// Clustered says whether this is a cluster: then the keys of a script must share a slot.
func (b *Backend) Clustered() bool { return b.cluster != nil }

// Deadline is the longest that a trip waits for the server to answer.
func (b *Backend) Deadline() time.Duration { return b.deadline }

// Answering says whether the server answered lately: false while the breaker is open, of a cluster while those of all
// its masters are.
func (b *Backend) Answering() bool {
	if b.cluster == nil {
		return !b.one.breaker.open()
	}
	known := b.cluster.inUse()
	for _, n := range known {
		if !n.breaker.open() {
			return true
		}
	}
	return len(known) == 0
}

// node is the server that has a slot; nil when a cluster does not tell within the deadline.
func (b *Backend) node(ctx context.Context, slot uint16) *node {
	if b.cluster == nil {
		return b.one
	}
	return b.cluster.node(ctx, slot)
}

// known is the server that has a slot, as far as that is known.
func (b *Backend) known(slot uint16) *node {
	if b.cluster == nil {
		return b.one
	}
	return b.cluster.known(slot)
}

// nodes are the servers that commands go to.
func (b *Backend) nodes(ctx context.Context) []*node {
	if b.cluster == nil {
		return []*node{b.one}
	}
	return b.cluster.masters(ctx)
}

// Ping asks whether Redis answers, within the deadline. It is what a readiness probe calls. Of a cluster one master is
// enough: what belongs to the others is up to whoever asks for it.
func (b *Backend) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.deadline)
	defer cancel()
	err := errNoNodes
	for _, n := range b.nodes(ctx) {
		if err = n.client.Load().Ping(ctx).Err(); err == nil {
			return nil
		}
		n.inTrouble()
	}
	return unavailable(err)
}

// ErrEvicts says that the server may throw counters away when its memory is full.
var ErrEvicts = errors.New("maxmemory-policy evicts keys: counters need noeviction")

// CheckMemoryPolicy refuses a server that evicts keys: a counter that is evicted is a budget that starts again at zero.
// A server that does not tell its policy passes. The masters of a cluster are asked at the same time, and one that answers
// is enough, as for Ping.
func (b *Backend) CheckMemoryPolicy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.deadline)
	defer cancel()
	list := b.nodes(ctx)
	if len(list) == 0 {
		return unavailable(errNoNodes)
	}
	errs := make([]error, len(list))
	var asking sync.WaitGroup
	for i, n := range list {
		asking.Go(func() { errs[i] = n.checkMemoryPolicy(ctx) })
	}
	asking.Wait()
	answered := false
	for _, err := range errs {
		if errors.Is(err, ErrEvicts) {
			return err
		}
		answered = answered || err == nil
	}
	if answered {
		return nil
	}
	return errors.Join(errs...)
}

func (n *node) checkMemoryPolicy(ctx context.Context) error {
	info, err := n.memoryInfo(ctx)
	if errors.Is(err, ErrUnavailable) {
		n.inTrouble()
		return err
	}
	if policy, told := info["maxmemory_policy"]; told && policy != "noeviction" {
		return fmt.Errorf("%w (it is %s)", ErrEvicts, policy)
	}
	return nil
}

// Load puts scripts into the servers' caches, so that the first request does not pay for it. Failing is harmless. It waits
// no longer than a second for all, or the deadline where that is more.
func (b *Backend) Load(ctx context.Context, scripts ...*Script) error {
	if b.eval {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(b.deadline, time.Second))
	defer cancel()
	var errs []error
	for _, n := range b.nodes(ctx) {
		p := n.client.Load().Pipeline()
		for _, s := range scripts {
			p.ScriptLoad(ctx, s.source[b.dialect].source)
		}
		if _, err := p.Exec(ctx); err != nil {
			errs = append(errs, unavailable(err))
		}
	}
	return errors.Join(errs...)
}
