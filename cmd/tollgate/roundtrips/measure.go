package roundtrips

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tollgate-proxy/tollgate/extproc/envoysim"
	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// Shape is one kind of request with what it costs in round trips.
type Shape struct {
	Name         string `json:"shape"`
	Store        string `json:"store"`         // the kind of Redis
	Before       int    `json:"before"`        // waited for before the upstream is called, or the answer given
	WaitedAfter  int    `json:"waited_after"`  // waited for after it
	WrittenAfter int    `json:"written_after"` // written, most of it when the stream has closed, to any one server at most; nobody waits
	LiteLLM      string `json:"litellm"`       // the peer's published figure for that shape; "" when it has none: before its rework -> after it
	// Trips are the commands of each trip, those that are waited for first; of several servers at the same time together.
	Trips [][]string `json:"-"`
}

// Redis is what is measured on.
type Redis struct {
	// Addr is a server's "host:port" or unix:/path. Its keys with the prefix of a run are left to run out, and it is made
	// to forget its scripts.
	Addr string
	// Cluster are the proxies before the nodes of a Redis Cluster, each of which announces its proxy's port as its own.
	// Without them no cluster is measured on.
	Cluster []*tripcount.Proxy
}

// Measure counts every shape. progress, when given, is told the name of each shape before it is measured.
func Measure(ctx context.Context, r Redis, progress func(string)) ([]Shape, error) {
	var list []Shape
	for _, st := range stores(r) {
		measured, err := st.measure(ctx, progress)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", st.name, err)
		}
		list = append(list, measured...)
	}
	return list, nil
}

func (st store) measure(ctx context.Context, progress func(string)) ([]Shape, error) {
	b, err := st.open()
	if err != nil {
		return nil, err
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
		if st.name == standalone {
			s.LiteLLM = published[c.name]
		}
		list = append(list, s)
	}
	return list, nil
}

// attempts bounds how often a request is sent that must find the process told of something: messages take their time.
const attempts = 10

// measure warms a shape up, then counts one request of it.
func (b *bench) measure(ctx context.Context, c shape) (Shape, error) {
	for n := range c.warm {
		if err := c.prepared(ctx, b, n); err != nil {
			return Shape{}, err
		}
		if _, err := envoysim.Exchange(ctx, b.client, c.request(n), answer); err != nil {
			return Shape{}, err
		}
	}
	for n := range attempts {
		b.count() // what the last request writes is no part of the next one
		if err := c.prepared(ctx, b, c.warm+n); err != nil {
			return Shape{}, err
		}
		if s, err := b.once(ctx, c, c.warm+n); err != nil || c.first == "" || s.begins(c.first) {
			return s, err
		}
	}
	return Shape{}, fmt.Errorf("no first trip of %d has a %q: not the shape that was to be measured", attempts, c.first)
}

// prepared makes the nth request of a shape what it is.
func (c shape) prepared(ctx context.Context, b *bench, n int) error {
	if c.prepare == nil {
		return nil
	}
	return c.prepare(ctx, b, n)
}

// begins says whether a command of the first trip has the text in it.
func (s Shape) begins(text string) bool {
	return len(s.Trips) > 0 && strings.Contains(strings.Join(s.Trips[0], " "), text)
}

// once counts the nth request of a shape.
func (b *bench) once(ctx context.Context, c shape, n int) (Shape, error) {
	b.count()
	for _, p := range b.proxies {
		p.Reset()
	}
	b.delay(apart)
	defer b.delay(0)
	s := Shape{Name: c.name}
	called := false
	before, waited := 0, 0 // as many of the trips
	got, err := envoysim.Exchange(ctx, b.client, c.request(n), func(r *envoysim.Request) *envoysim.Answer {
		called = true
		before = len(b.count())
		return answer(r)
	}, func() {
		waited = len(b.count())
		if !called {
			before = waited
		}
	})
	if err != nil {
		return Shape{}, err
	}
	if got.Status != c.status || called != c.upstream {
		return Shape{}, fmt.Errorf("status %d, upstream called %t: not the shape that was to be measured: %s", got.Status, called, got.Body())
	}
	trips := b.count()
	first, written := splitWritten(trips[:before])
	then, more := splitWritten(trips[before:waited])
	written = slices.Concat(written, more, trips[waited:])
	s.Before, s.WaitedAfter, s.WrittenAfter = len(waits(first)), len(waits(then)), mostOfOne(written)
	for _, list := range [][]trip{first, then, written} {
		for _, w := range waits(list) {
			s.Trips = append(s.Trips, w.commands())
		}
	}
	return s, nil
}

// delay makes the trips of several servers so long that those of one wait overlap.
func (b *bench) delay(d time.Duration) {
	if len(b.proxies) < 2 {
		return
	}
	for _, p := range b.proxies {
		p.Delay(d)
	}
}
