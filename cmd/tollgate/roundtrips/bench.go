package roundtrips

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tollgate-proxy/tollgate/extproc"
	"github.com/tollgate-proxy/tollgate/governance"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// bench is the filter on Redis behind counting proxies.
type bench struct {
	proxies   []*tripcount.Proxy
	gate      *governance.Gate
	client    extprocv3.ExternalProcessorClient
	prefix    string
	backend   *pipeline.Backend // of the counters and identities, for what the bench itself does between counts
	publisher *identity.Publisher
	ends      []func()
}

// newBench makes a bench on one server, with as many proxies before it as backends are to be told apart: the first leads
// to the counters, a second one to the cache.
func newBench(addr string, proxies int) (*bench, error) {
	b := &bench{}
	var urls []string
	for range proxies {
		p, err := tripcount.New(addr)
		if err != nil {
			b.close()
			return nil, err
		}
		b.proxies, b.ends = append(b.proxies, p), append(b.ends, p.Close)
		urls = append(urls, p.URL())
	}
	return b.start(urls)
}

// newClusterBench makes a bench on a cluster.
func newClusterBench(proxies []*tripcount.Proxy) (*bench, error) {
	b := &bench{proxies: proxies}
	var addrs []string
	for _, p := range proxies {
		addrs = append(addrs, p.Addr())
	}
	return b.start([]string{"redis+cluster://" + strings.Join(addrs, ",")})
}

// start starts the filter on the counters' Redis and, if there is a second URL, the cache's.
func (b *bench) start(urls []string) (started *bench, err error) {
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	var backends []*pipeline.Backend
	for _, url := range append(slices.Clone(urls), urls[0]) { // the last one is the bench's own
		backend, err := pipeline.Open(pipeline.Options{URL: url, Deadline: 2 * time.Second})
		if err != nil {
			return nil, err
		}
		b.ends = append(b.ends, func() { _ = backend.Close() })
		if err := backend.Ping(context.Background()); err != nil {
			return nil, err
		}
		backends = append(backends, backend)
	}
	cfg := configuration()
	options := governance.Options{Config: cfg, Counters: backends[0], Identities: true}
	if len(urls) > 1 {
		options.Cache = backends[1]
	}
	b.prefix, b.backend = cfg.Redis.Prefix, backends[len(urls)]
	b.publisher = &identity.Publisher{Backend: b.backend, Prefix: b.prefix}
	if b.gate, err = governance.New(options); err != nil {
		return nil, err
	}
	b.ends = append(b.ends, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = b.gate.Close(ctx)
	})
	return b, b.serve()
}

// serve starts the ext_proc server and connects to it.
func (b *bench) serve() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s := grpc.NewServer()
	extproc.New(b.gate, nil).Register(s)
	go func() { _ = s.Serve(l) }() // until it is stopped
	b.ends = append(b.ends, s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	b.ends = append(b.ends, func() { _ = conn.Close() })
	b.client = extprocv3.NewExternalProcessorClient(conn)
	return nil
}

func (b *bench) close() {
	for _, end := range slices.Backward(b.ends) {
		end()
	}
}

// put puts an edit of identities in force.
func (b *bench) put(ctx context.Context, rows ...*identity.Row) error {
	for _, row := range rows {
		if err := b.publisher.Put(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// expire makes all that the filter's memory holds of identities stale, as their age does: by a message that says nothing.
func (b *bench) expire(ctx context.Context) error {
	_, err := pipeline.Declare(b.backend.Upkeep("bench"), "bench", pipeline.Raw, "PUBLISH", b.prefix+":invalidate", "").Get(ctx)
	return err
}

// forget makes every server forget its scripts.
func (b *bench) forget(ctx context.Context) error {
	for _, p := range b.proxies {
		backend, err := pipeline.Open(pipeline.Options{URL: p.URL(), Deadline: 2 * time.Second})
		if err != nil {
			return err
		}
		_, err = pipeline.Declare(backend.Upkeep("bench"), "bench", pipeline.Raw, "SCRIPT", "FLUSH").Get(ctx)
		if err := backend.Close(); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}
	return nil
}
