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
	"github.com/tollgate-proxy/tollgate/extproc/envoysim"
	"github.com/tollgate-proxy/tollgate/governance"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// Shape is one kind of request with what it costs in round trips.
type Shape struct {
	Name         string `json:"shape"`
	Store        string `json:"store"`         // the kind of Redis
	Before       int    `json:"before"`        // waited for before the upstream is called, or the answer given
	WaitedAfter  int    `json:"waited_after"`  // waited for after it
	WrittenAfter int    `json:"written_after"` // written when the stream has closed; nobody waits
	LiteLLM      string `json:"litellm"`       // the peer's published figure for that shape; "" when it has none: before its rework -> after it
	// Trips are the commands of each trip, in order.
	Trips [][]string `json:"-"`
}

// quiet is how long nothing may pass before a count is taken.
const quiet = 60 * time.Millisecond

// bench is the filter on a Redis behind a counting proxy.
type bench struct {
	proxy  *tripcount.Proxy
	gate   *governance.Gate
	client extprocv3.ExternalProcessorClient
	ends   []func()
}

// Measure counts every shape on the Redis at addr ("host:port"), whose keys with the prefix of this run it leaves to run
// out. progress, when given, is told the name of each shape before it is measured.
func Measure(ctx context.Context, addr string, progress func(string)) ([]Shape, error) {
	var list []Shape
	for _, st := range stores() {
		measured, err := st.measure(ctx, addr, progress)
		if err != nil {
			return nil, err
		}
		list = append(list, measured...)
	}
	return list, nil
}

func (st store) measure(ctx context.Context, addr string, progress func(string)) ([]Shape, error) {
	b, err := st.open(addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", st.name, err)
	}
	defer b.close()
	var list []Shape
	for _, c := range st.shapes {
		if progress != nil {
			progress(c.name)
		}
		s, err := b.measure(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		s.Store = st.name
		list = append(list, s)
	}
	return list, nil
}

func newBench(addr string) (b *bench, err error) {
	b = &bench{}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.proxy, err = tripcount.New(addr); err != nil {
		return nil, err
	}
	b.ends = append(b.ends, b.proxy.Close)
	backend, err := pipeline.Open(pipeline.Options{URL: b.proxy.URL(), Deadline: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	b.ends = append(b.ends, func() { _ = backend.Close() })
	if err := backend.Ping(context.Background()); err != nil {
		return nil, err
	}
	if b.gate, err = governance.New(governance.Options{Config: configuration(), Counters: backend}); err != nil {
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

// measure warms a shape up, then counts one request of it.
func (b *bench) measure(ctx context.Context, c shape) (Shape, error) {
	for n := range c.warm {
		if _, err := envoysim.Exchange(ctx, b.client, c.request(n), answer); err != nil {
			return Shape{}, err
		}
	}
	b.count()
	b.proxy.Reset()
	s := Shape{Name: c.name, LiteLLM: published[c.name]}
	called := false
	got, err := envoysim.Exchange(ctx, b.client, c.request(c.warm), func(r *envoysim.Request) *envoysim.Answer {
		called = true
		s.Before = len(b.count())
		return answer(r)
	}, func() {
		n := len(b.count())
		if called {
			s.WaitedAfter = n - s.Before
		} else {
			s.Before = n
		}
	})
	if err != nil {
		return Shape{}, err
	}
	if got.Status != c.status || called != c.upstream {
		return Shape{}, fmt.Errorf("status %d, upstream called %t: not the shape that was to be measured: %s", got.Status, called, got.Body())
	}
	s.Trips = b.count()
	s.WrittenAfter = len(s.Trips) - s.Before - s.WaitedAfter
	return s, nil
}

// count waits until nothing passes any more and returns the commands of each trip, but for those of the process' own
// upkeep, which belong to no request.
func (b *bench) count() [][]string {
	time.Sleep(quiet) // what nobody should send has its chance
	for n := 0; n < 5000 && b.gate.Pending() > 0; n++ {
		time.Sleep(time.Millisecond)
	}
	b.proxy.WaitQuiet(quiet)
	var list [][]string
	for _, t := range b.proxy.Trips() {
		var names []string
		for _, cmd := range t.Commands {
			names = append(names, describe(cmd))
		}
		if !upkeep(t.Commands) {
			list = append(list, names)
		}
	}
	return list
}

func upkeep(commands [][]string) bool {
	return slices.ContainsFunc(commands, func(cmd []string) bool {
		return strings.EqualFold(cmd[0], "script") || strings.EqualFold(cmd[0], "info") || len(cmd) > 1 && strings.HasSuffix(cmd[1], ":replicas")
	})
}

// describe is a command by its name and its first key.
func describe(cmd []string) string {
	name := strings.ToUpper(cmd[0])
	key := 1
	if name == "EVALSHA" || name == "EVAL" {
		key = 3
	}
	if len(cmd) > key {
		return name + " " + cmd[key]
	}
	return name
}
