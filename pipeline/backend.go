package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options says where a Redis is and how it is spoken to.
type Options struct {
	URL      string // redis://[user[:password]@]host[:port][/db] or unix:///path?db=n
	Username string // used when the URL has none
	Password string // used when the URL has none
	// Deadline is the longest that a trip waits for the server to answer. Zero means 100 ms.
	Deadline time.Duration
	// Eval sends whole scripts, for servers that forbid EVALSHA.
	Eval bool
	// PoolSize is the number of connections. Zero means 8: a few trips at a time carry all requests.
	PoolSize int
	// Tracer sees every trip; nil traces nothing.
	Tracer *Tracer
}

// Backend is one Redis, or the in-process store. It is safe for concurrent use.
type Backend struct {
	client   *redis.Client
	deadline time.Duration
	eval     bool
	dialect  int
	tracer   *Tracer
	breaker  breaker
	merger   merger
	embedded *embedded // nil for a server
}

// Open makes a backend for a server. It does no I/O: a server that is away is found out by the first batch, or by Ping.
func Open(opt Options) (*Backend, error) {
	ro, err := redis.ParseURL(opt.URL)
	if err != nil {
		return nil, fmt.Errorf("redis url: %w", err)
	}
	if ro.Username == "" {
		ro.Username = opt.Username
	}
	if ro.Password == "" {
		ro.Password = opt.Password
	}
	return open(ro, opt, withShebang), nil
}

// quiet keeps go-redis from writing to standard error: each failure reaches whoever asked, and is counted.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

func open(ro *redis.Options, opt Options, dialect int) *Backend {
	silence()
	deadline := opt.Deadline
	if deadline <= 0 {
		deadline = 100 * time.Millisecond
	}
	ro.Protocol = 2           // no HELLO: a new connection is ready one trip earlier, and pushes are not used
	ro.DisableIdentity = true // no CLIENT SETINFO, for the same reason
	ro.MaxRetries = -1        // never resend what may have been executed
	ro.ContextTimeoutEnabled = true
	ro.DialTimeout = time.Second // bounded by the batch's own deadline as well
	ro.DialerRetries = 1         // a refused connection is an answer
	ro.ReadTimeout = 5 * time.Second
	ro.WriteTimeout = 5 * time.Second
	ro.PoolTimeout = deadline
	ro.PoolSize = opt.PoolSize
	if ro.PoolSize <= 0 {
		ro.PoolSize = 8
	}
	ro.Dialer = dialer(ro.Network, ro.Addr, ro.DialTimeout)
	return &Backend{
		client:   redis.NewClient(ro),
		deadline: deadline,
		eval:     opt.Eval,
		dialect:  dialect,
		tracer:   opt.Tracer,
		breaker:  breaker{threshold: 3, pause: 250 * time.Millisecond},
	}
}

// Close closes the connections; batches that are under way fail.
func (b *Backend) Close() error {
	err := b.client.Close()
	if b.embedded != nil {
		b.embedded.close()
	}
	return err
}

// Embedded says whether this is the in-process store.
func (b *Backend) Embedded() bool { return b.embedded != nil }

// Deadline is the longest that a trip waits for the server to answer.
func (b *Backend) Deadline() time.Duration { return b.deadline }

// Ping asks the server whether it answers, within the deadline. It is what a readiness probe calls.
func (b *Backend) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.deadline)
	defer cancel()
	if err := b.client.Ping(ctx).Err(); err != nil {
		return unavailable(err)
	}
	return nil
}

// ErrEvicts says that the server may throw counters away when its memory is full.
var ErrEvicts = errors.New("maxmemory-policy evicts keys: counters need noeviction")

// CheckMemoryPolicy refuses a server that evicts keys: a counter that is evicted is a budget that starts again at zero.
// A server that does not tell its policy passes.
func (b *Backend) CheckMemoryPolicy(ctx context.Context) error {
	if b.Embedded() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.deadline)
	defer cancel()
	info, err := b.client.Info(ctx, "memory").Result()
	if err != nil {
		if isReply(err) {
			return nil
		}
		return unavailable(err)
	}
	for line := range strings.Lines(info) {
		policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:")
		if ok && policy != "noeviction" {
			return fmt.Errorf("%w (it is %s)", ErrEvicts, policy)
		}
	}
	return nil
}

// Load puts scripts into the server's cache, so that the first request does not pay for it. Failing is harmless.
func (b *Backend) Load(ctx context.Context, scripts ...*Script) error {
	if b.eval {
		return nil
	}
	p := b.client.Pipeline()
	for _, s := range scripts {
		p.ScriptLoad(ctx, s.source[b.dialect].source)
	}
	if _, err := p.Exec(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}

// exec sends commands of a number of batches as one pipeline and records the trip. The commands' own errors are the
// result.
func (b *Backend) exec(ctx context.Context, kind Kind, caller string, batches int, owners []string, cmds []redis.Cmder) {
	started := b.tracer.start()
	p := b.client.Pipeline()
	for _, c := range cmds {
		_ = p.Process(ctx, c) // queues; a pipeline returns no error here
	}
	_, _ = p.Exec(ctx) // the first error of all says nothing about any one of them
	b.tracer.trip(started, kind, caller, batches, owners, cmds)
}
