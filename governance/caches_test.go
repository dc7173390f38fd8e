package governance

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// cachesRig is a gate whose cached answers live on a server of their own.
type cachesRig struct {
	*replica
	counters, cache           *redistest.Server
	countersProxy, cacheProxy *redistest.Proxy
}

// cached changes a configuration so that answers are kept and the key of the file has every kind of counter.
func cached(cfg *config.Config) {
	cfg.Cache = &config.Cache{TTL: time.Minute, Scope: "key", MaxEntry: 1 << 20}
	cfg.Keys[0].Limits = usdBudget(1)
	cfg.Keys[0].Limits.RPM = &config.Rate{Limit: 1000}
	cfg.Keys[0].Limits.Parallel = &config.Rate{Limit: 10}
}

func newCachesRig(t *testing.T, change func(*config.Config)) *cachesRig {
	t.Helper()
	x := &cachesRig{counters: redistest.Start(t), cache: redistest.Start(t)}
	x.countersProxy, x.cacheProxy = redistest.NewProxy(t, x.counters.Addr()), redistest.NewProxy(t, x.cache.Addr())
	backend, err := pipeline.Open(pipeline.Options{URL: x.countersProxy.URL(), Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	store, err := pipeline.Open(pipeline.Options{URL: x.cacheProxy.URL(), Deadline: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	x.replica = newReplica(t, backend, func(cfg *config.Config) {
		cached(cfg)
		if change != nil {
			change(cfg)
		}
	}, func(o *Options) { o.Cache, o.Identities = store, false })
	return x
}

// question is a body that is cached apart from those with another text. Its answer costs answerCost.
func question(text string) string {
	return `{"model":"m","max_tokens":1000,"messages":[{"role":"user","content":"` + text + `"}]}`
}

const (
	answerBody = `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":900,"total_tokens":900}}`
	answerCost = 900_000 // nano-dollars
)

// chat sends a request of the file's key and plays the upstream for it.
func (r *replica) chat(text string) outcome {
	r.Helper()
	o := r.request("POST", "/v1/chat/completions", "sk-file", question(text))
	if o.status == 0 {
		o.call.Released()
		o.call.Answered(200, rowHeaders{"content-type": {"application/json"}}, false)
		o.call.Piece([]byte(answerBody), true)
		o.call.End()
	}
	return o
}

// ask sends a request, wants it to end so, and waits for what it writes to the counters. It returns how often it waited.
func (x *cachesRig) ask(text string, status int, reason string) int {
	x.Helper()
	o := x.chat(text)
	if o.status != status || status != 0 && o.reason != "tollgate_"+reason {
		x.Errorf("%s: %d %s, want %d %s: %s", text, o.status, o.reason, status, reason, o.body)
	}
	x.settled()
	return o.waits
}

// books wants so many answers to have been paid, and nothing to be held.
func (x *cachesRig) books(paid int64) {
	x.Helper()
	c := x.counters.Client()
	got := c.HMGet(x.Context(), "tg:{k:file}:b:key:file", "ulifetime.s", "ulifetime.r").Val()
	if len(got) != 2 || got[0] != strconv.FormatInt(paid*answerCost, 10) || got[1] != "0" {
		x.Errorf("spent and reserved %v, want %d and 0", got, paid*answerCost)
	}
	if n := c.ZCard(x.Context(), "tg:{k:file}:l:key:file").Val(); n != 0 {
		x.Errorf("%d slots are held", n)
	}
}

// entries is how many answers a server keeps.
func entries(t *testing.T, s *redistest.Server) int {
	t.Helper()
	keys, err := s.Client().Keys(t.Context(), "tg:c:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return len(keys)
}

// ofRequests are the trips that belong to requests, by the names of their commands.
func ofRequests(trips []tripcount.Trip) []string {
	var list []string
	for _, trip := range trips {
		var names []string
		for _, cmd := range trip.Commands {
			names = append(names, strings.ToUpper(cmd[0]))
		}
		switch names[0] {
		case "SCRIPT", "INFO", "ZADD": // upkeep
		default:
			list = append(list, strings.Join(names, " "))
		}
	}
	return list
}

// trips wants the trips of requests since the last Reset.
func trips(t *testing.T, what string, p *redistest.Proxy, want ...string) {
	t.Helper()
	p.WaitQuiet(20 * time.Millisecond)
	if got := ofRequests(p.Trips()); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("%s: trips %q, want %q", what, got, want)
	}
}

func TestCacheOnItsOwnServer(t *testing.T) {
	t.Parallel()
	x := newCachesRig(t, nil)
	x.until("scripts are loaded", func() bool { return x.gate.load(t.Context()) })
	x.countersProxy.Reset()
	x.cacheProxy.Reset()
	if waits := x.ask("a", 0, ""); waits != 1 {
		t.Errorf("a miss waits %d times", waits)
	}
	x.until("the answer is kept", func() bool { return entries(t, x.cache) == 1 })
	trips(t, "counters, miss", x.countersProxy, "EVALSHA", "EVALSHA")
	trips(t, "cache, miss", x.cacheProxy, "GET", "SET")
	x.countersProxy.Reset()
	x.cacheProxy.Reset()
	if waits := x.ask("a", 200, "cache_hit"); waits != 1 {
		t.Errorf("a hit waits %d times", waits)
	}
	trips(t, "counters, hit", x.countersProxy, "EVALSHA", "EVALSHA")
	trips(t, "cache, hit", x.cacheProxy, "GET")
	if n := entries(t, x.counters); n != 0 {
		t.Errorf("%d answers are kept with the counters", n)
	}
	x.books(1)
}

// Without the cache's server every request is a miss, and the counters are as exact as with it. It comes back by itself.
func TestCacheServerAway(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"dead", "hangs"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			x := newCachesRig(t, nil)
			x.ask("a", 0, "")
			x.until("the answer is kept", func() bool { return entries(t, x.cache) == 1 })
			away, back := x.cache.Kill, x.cache.Restart
			if how == "hangs" {
				away, back = x.cache.Pause, x.cache.Resume
			}
			away()
			for range 6 { // the breaker opens between
				x.ask("a", 0, "")
			}
			x.books(7)
			back()
			x.until("answers are kept again", func() bool { return entries(t, x.cache) == 1 })
			paid := int64(7)
			x.until("and served", func() bool {
				o := x.chat("a")
				x.settled()
				if o.status == 0 {
					paid++
				}
				return o.reason == "tollgate_cache_hit"
			})
			x.books(paid)
		})
	}
}

// An operator may rather have nothing than a miss. What such a request was granted is given back.
func TestCacheServerAwayIsRefused(t *testing.T) {
	t.Parallel()
	x := newCachesRig(t, func(cfg *config.Config) { cfg.Redis.OnFailure.Cache = "deny" })
	x.ask("a", 0, "")
	x.until("the answer is kept", func() bool { return entries(t, x.cache) == 1 })
	x.ask("a", 200, "cache_hit")
	x.ask("b", 0, "") // a miss is no failure
	x.cache.Kill()
	for range 6 {
		x.ask("a", 503, "store_unreachable")
	}
	x.books(2)
	if n := x.counters.Client().HGet(t.Context(), "tg:{k:file}:r:key:file", "w").Val(); strings.Count(n, ":") == 0 {
		t.Errorf("no window of requests is kept: %q", n)
	}
	x.cache.Restart()
	x.until("requests pass again", func() bool {
		o := x.chat("c")
		x.settled()
		return o.status == 0
	})
	x.books(3)
}

// Where both are one backend the cached answer is asked for in the admission's pipeline, and kept in the settlement's.
func TestCacheBesideTheCounters(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, cached, func(o *Options) { o.Identities = false })
	r := rig.replicas[0]
	r.until("scripts are loaded", func() bool { return r.gate.load(t.Context()) })
	r.proxy.Reset()
	if o := r.chat("a"); o.status != 0 || o.waits != 1 {
		t.Errorf("miss: %+v", o)
	}
	r.settled()
	trips(t, "miss", r.proxy, "EVALSHA GET", "EVALSHA SET")
	r.proxy.Reset()
	if o := r.chat("a"); o.reason != "tollgate_cache_hit" || o.waits != 1 {
		t.Errorf("hit: %+v", o)
	}
	r.settled()
	trips(t, "hit", r.proxy, "EVALSHA GET", "EVALSHA")
}
