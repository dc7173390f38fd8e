package pipeline_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// order is one command of a mix: what it is, where KEY stands for a key of its own.
type order struct {
	name   string
	script *pipeline.Script // else args is a plain command
	args   []any
	err    error // that its handle must have without anything being sent; nil: what the server says
}

// orders are commands that fail in all ways there are, and some that do not.
func orders() []order {
	lua := func(name, source string, args ...any) order {
		return order{name: name, script: pipeline.NewScript(name, source), args: args}
	}
	plain := func(name string, args ...any) order { return order{name: name, args: args} }
	return []order{
		plain("nil", "GET", "missing"),
		plain("nil in an array", "MGET", "missing", "text", "missing"),
		plain("wrong type", "HGETALL", "text"),
		plain("wrong type of a write", "RPUSH", "text", "x"),
		plain("no number", "INCR", "text"),
		plain("unknown command", "NOSUCH", "x"),
		plain("too few arguments", "GET"),
		plain("bad option", "SET", "missing", "x", "EX", "never"),
		plain("no script", "EVALSHA", strings.Repeat("0", 40), "0"),
		plain("bad number of keys", "EVAL", "return 1", "5", "a"),
		plain("read", "GET", "text"),
		plain("write", "SET", "KEY", "x"),
		plain("count", "INCR", "KEY"),
		plain("script cache is flushed", "SCRIPT", "FLUSH"),
		lua("raises", `error('boom')`),
		lua("raises after a write", `redis.call('INCR', KEYS[1]) error({err='MINE half-way'})`),
		lua("does not compile", `return (`),
		lua("wrong type within", `return redis.call('HGET', 'text', 'f')`),
		lua("unknown command within", `return redis.call('NOSUCH')`),
		lua("own error", `return redis.error_reply('OWN error')`),
		lua("own status", `return redis.status_reply('FINE')`),
		lua("nil of a script", `return false`),
		lua("error in an array", `return {1, redis.error_reply('INNER error'), 'x'}`),
		lua("counts", `return redis.call('INCRBY', KEYS[1], ARGV[1])`, 7),
		lua("long", `return string.rep(ARGV[1], 5000)`, "ab"),
		{name: "too large", args: []any{"SET", "missing", strings.Repeat("x", maxInMix+1)}, err: pipeline.ErrTooLarge},
		{name: "no form", args: []any{"SET", "missing", struct{}{}}, err: pipeline.ErrArgument},
	}
}

const maxInMix = 20_000

// outcome is a reply as its owner sees it.
func outcome(v any, err error) string {
	if errors.Is(err, redis.Nil) {
		return "nil"
	}
	if err != nil {
		return "error " + err.Error()
	}
	return fmt.Sprintf("%T %v", v, v)
}

// alone is what the order gets when a plain client sends it.
func (o order) alone(t *rapid.T, c *redis.Client, key string) string {
	args := make([]any, 0, len(o.args)+4)
	if o.script != nil {
		args = append(args, "EVAL", o.script.Source(), 1, key)
	}
	for _, a := range o.args {
		if a == "KEY" {
			a = key
		}
		args = append(args, a)
	}
	return outcome(c.Do(t.Context(), args...).Result())
}

func (o order) declare(b *pipeline.Batch, key string) pipeline.Handle[any] {
	if o.script != nil {
		return pipeline.Eval(b, o.name, pipeline.Raw, o.script, []string{key}, o.args...)
	}
	args := make([]any, len(o.args))
	for i, a := range o.args {
		if args[i] = a; a == "KEY" {
			args[i] = key
		}
	}
	return pipeline.Declare(b, o.name, pipeline.Raw, args...)
}

// Whatever concurrent callers send together, each handle gets exactly what its command gets when it is sent alone, and
// the keys hold what the commands wrote, once each.
func TestFailingCommandsReachOnlyTheirOwners(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	plain := server.Client()
	var backends []*pipeline.Backend
	for _, eval := range []bool{false, true} {
		b, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 20 * time.Second, MaxValue: maxInMix, Eval: eval})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		backends = append(backends, b)
	}
	all := orders()
	rapid.Check(t, func(t *rapid.T) {
		plain.FlushAll(t.Context())
		plain.Set(t.Context(), "text", "words", 0)
		b := rapid.SampledFrom(backends).Draw(t, "backend")
		one := rapid.SliceOfN(rapid.IntRange(0, len(all)-1), 1, 12)
		callers := rapid.SliceOfN(one, 1, 30).Draw(t, "callers")
		got := make([][]string, len(callers))
		var wg sync.WaitGroup
		for i, list := range callers {
			wg.Go(func() {
				batch := b.Batch(fmt.Sprint(i))
				handles := make([]pipeline.Handle[any], len(list))
				for k, o := range list {
					handles[k] = all[o].declare(batch, fmt.Sprintf("k:%d:%d", i, k))
				}
				got[i] = make([]string, len(list))
				for k := len(list) - 1; k >= 0; k-- { // in whatever order they are asked for
					v, err := handles[k].Get(t.Context())
					if want := all[list[k]].err; want != nil && errors.Is(err, want) {
						got[i][k] = "as it must"
						continue
					}
					got[i][k] = outcome(v, err)
				}
			})
		}
		wg.Wait()
		for i, list := range callers {
			for k, o := range list {
				want := "as it must"
				if all[o].err == nil {
					want = all[o].alone(t, plain, fmt.Sprintf("alone:%d:%d", i, k))
				}
				if got[i][k] != want {
					t.Errorf("caller %d, %s: %q, alone %q", i, all[o].name, got[i][k], want)
				}
			}
		}
		if diff := cmp.Diff(contents(t, plain, "alone:"), contents(t, plain, "k:")); diff != "" {
			t.Errorf("keys (-alone +together):\n%s", diff)
		}
		if n := plain.DBSize(t.Context()).Val(); n != int64(1+2*len(contents(t, plain, "k:"))) {
			t.Errorf("%d keys: something else was written", n)
		}
		if v := plain.Get(t.Context(), "text").Val(); v != "words" {
			t.Errorf("text = %q", v)
		}
	})
}

// contents are the strings under a prefix, by what follows it.
func contents(t *rapid.T, c *redis.Client, prefix string) map[string]string {
	all := map[string]string{}
	for _, key := range c.Keys(t.Context(), prefix+"*").Val() {
		all[strings.TrimPrefix(key, prefix)] = c.Get(t.Context(), key).Val()
	}
	return all
}
