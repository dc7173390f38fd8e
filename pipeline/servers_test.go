package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// comeback is how soon all must be well again once a server is. It is what is promised, and long enough for a machine that
// stalls.
const comeback = 5 * time.Second

// returns waits until something works, which it must within the time promised.
func returns(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(comeback); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not within %v: %v", what, comeback, err)
}

// counts asks for the script that counts, and returns its error.
func counts(t *testing.T, b *pipeline.Backend, key string) error {
	t.Helper()
	_, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{key}).Get(t.Context())
	return err
}

// open opens a backend until the test ends.
func open(t *testing.T, opt pipeline.Options) *pipeline.Backend {
	t.Helper()
	b, err := pipeline.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// scripter is a user on a server that forbids script commands, but for EVAL.
var scripter = redistest.User{Name: "app", Password: "p/w:@", Rules: []string{"~*", "&*", "+@all", "-script", "-evalsha"}}

// Every kind of server keeps the contract, and so does one that takes whole scripts only.
func TestKindsOfServers(t *testing.T) {
	t.Parallel()
	redistest.Kinds(t, func(t *testing.T, kind redistest.Kind) {
		t.Parallel()
		for _, whole := range []bool{false, true} {
			name, args := "evalsha", []string(nil)
			if whole {
				name, args = "eval", redistest.Users(scripter)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := kind.Start(t, args...)
				proxy := redistest.NewProxy(t, server.Addr())
				opt := pipeline.Options{URL: proxy.URL(), Deadline: 5 * time.Second}
				if whole {
					opt.Username, opt.Password, opt.Eval = scripter.Name, scripter.Password, true
				}
				c := contract{T: t, b: open(t, opt), proxy: proxy, server: server, whole: whole}
				c.start()
				c.batch()
				c.atMostOnce()
				c.exactlyOnce()
			})
		}
	})
}

// contract is what is asked of every server.
type contract struct {
	*testing.T
	b      *pipeline.Backend
	proxy  *redistest.Proxy
	server *redistest.Server
	whole  bool // scripts are sent whole
}

// start is what a process does first.
func (c *contract) start() {
	if err := c.b.Ping(c.Context()); err != nil {
		c.Fatal(err)
	}
	if err := c.b.Load(c.Context(), count, once); err != nil {
		c.Fatal(err)
	}
	if err := c.b.CheckMemoryPolicy(c.Context()); err != nil {
		c.Errorf("noeviction: %v", err)
	}
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "noeviction"} {
		if err := c.server.Client().ConfigSet(c.Context(), "maxmemory-policy", policy).Err(); err != nil {
			c.Fatal(err)
		}
		if err := c.b.CheckMemoryPolicy(c.Context()); errors.Is(err, pipeline.ErrEvicts) != (policy != "noeviction") {
			c.Errorf("%s: %v", policy, err)
		}
	}
	if err := c.server.Client().ConfigSet(c.Context(), "maxmemory", "64mb").Err(); err != nil {
		c.Fatal(err)
	}
	if m, err := c.b.Memory(c.Context()); err != nil || len(m) != 1 || m[0].Max != 64<<20 || m[0].Used <= 0 || m[0].Used >= 64<<20 {
		c.Errorf("memory = %+v, %v", m, err)
	}
}

// batch sends one pipeline in which neighbours fail and the script is lost.
func (c *contract) batch() {
	ctx := c.Context()
	c.server.Client().Set(ctx, "text", "x", 0)
	c.server.Client().ScriptFlush(ctx)
	c.proxy.Reset()
	batch := c.b.Batch("r")
	missing := pipeline.Declare(batch, "a", pipeline.Bytes, "GET", "nothing")
	wrong := pipeline.Declare(batch, "b", pipeline.Raw, "HGETALL", "text")
	script := pipeline.Eval(batch, "c", integer, count, []string{"n"})
	broken := pipeline.Eval(batch, "d", integer, count, []string{"text"})
	fine := pipeline.Declare(batch, "e", pipeline.Bytes, "GET", "text")
	if _, err := missing.Get(ctx); !errors.Is(err, pipeline.ErrNil) {
		c.Errorf("missing: %v", err)
	}
	if _, err := wrong.Get(ctx); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		c.Errorf("wrong: %v", err)
	}
	if n, err := script.Get(ctx); n != 1 || err != nil {
		c.Errorf("script: %d, %v", n, err)
	}
	if _, err := broken.Get(ctx); err == nil || !strings.Contains(err.Error(), "not an integer") || errors.Is(err, pipeline.ErrUnavailable) {
		c.Errorf("broken: %v", err)
	}
	if v, err := fine.Get(ctx); string(v) != "x" || err != nil {
		c.Errorf("fine: %q, %v", v, err)
	}
	want := 2 // the second one brings the scripts along
	if c.whole {
		want = 1
	}
	c.proxy.WaitQuiet(20 * time.Millisecond)
	if got := len(c.proxy.Trips()); got != want || batch.Trips() != want {
		c.Errorf("%d trips on the wire, %d by the batch, want %d", got, batch.Trips(), want)
	}
}

// isScript matches a call of a script.
func isScript(cmd []string) bool { return is("evalsha")(cmd) || is("eval")(cmd) }

// atMostOnce loses replies of requests.
func (c *contract) atMostOnce() {
	ctx := c.Context()
	for range 5 {
		c.server.Client().Del(ctx, "n")
		c.proxy.CutAfter(isScript)
		if err := counts(c.T, c.b, "n"); !errors.Is(err, pipeline.ErrUnavailable) {
			c.Errorf("a lost reply gave %v", err)
		}
		if n := c.server.Client().Get(ctx, "n").Val(); n != "1" {
			c.Errorf("executed %s times, want 1", n)
		}
		if err := counts(c.T, c.b, "n"); err != nil {
			c.Errorf("the next request: %v", err)
		}
	}
}

// exactlyOnce loses scripts and replies of writes.
func (c *contract) exactlyOnce() {
	d := pipeline.NewDeferred(c.b, pipeline.DeferredOptions{MaxFlush: 7})
	for i := range 60 {
		if i%6 == 0 {
			c.proxy.CutAfter(isScript)
		}
		if i%10 == 0 {
			c.server.Client().ScriptFlush(context.Background())
		}
		add(d, 1)
		if i%3 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
	drain(c.T, d)
	if got := sum(c.T, c.server, "sum"); got != "60" {
		c.Errorf("sum = %s, want 60", got)
	}
	if s := d.Stats(); s.Lost != 0 {
		c.Errorf("%d writes were lost", s.Lost)
	}
}
