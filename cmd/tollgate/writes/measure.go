package writes

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// Options say what is measured, and where.
type Options struct {
	// Addr is the Redis, a host:port or unix:/path. Keys have a prefix of their own and are deleted afterwards.
	Addr string
	// Count is how many users there are, one write each; at least 1.
	Count int
	// RTT is added to each round trip; at least 0.
	RTT time.Duration
	// MaxFlush bounds one pipeline of the deferred batch, in commands. Zero means what tollgate itself uses.
	MaxFlush int
	// Progress, when given, is told what goes on: at once, then every few seconds.
	Progress func(string)
}

// Result is what one way of writing took: its fastest run, when it is so short that it was repeated.
type Result struct {
	How   string  `json:"how"` // single, pipeline or deferred
	MS    float64 `json:"ms"`
	Count int     `json:"count"`
	RTTMS float64 `json:"rtt_ms"`
	// Ratio is how many times faster it is than one by one.
	Ratio float64 `json:"ratio"`
	// Trips are the alternations on the wire: a pipeline whose first replies are back before its last command has left
	// is more than one.
	Trips int `json:"trips"`
	// PublishedMS and PublishedRatio are what a Java comparison published for 100,000 writes.
	PublishedMS    float64 `json:"published_ms"`
	PublishedRatio float64 `json:"published_ratio"`
	// Title and PublishedTitle name the two for a reader.
	Title          string `json:"-"`
	PublishedTitle string `json:"-"`
	// Largest is the number of commands of the largest trip.
	Largest int `json:"-"`
}

// way is one way of writing, with what was published.
type way struct {
	how, title     string
	publishedTitle string
	publishedMS    float64
	publishedRatio float64
	write          func(*bench, context.Context) (time.Duration, error)
}

// ways begin with the one that the others are compared with.
var ways = []way{
	{"single", "one by one", "one by one", 162_655, 1, (*bench).single},
	{"pipeline", "in one pipeline", "a pipeline", 504, 322, (*bench).pipelined},
	{"deferred", "through the deferred batch", "a higher-level client's batch", 1_399, 116, (*bench).deferred},
}

// bench is a Redis behind a proxy that takes its time.
type bench struct {
	Options
	keys   []string // of the users
	proxy  *tripcount.Proxy
	direct *redis.Client // past the proxy, to look what has arrived
	way    way
	told   time.Time // when Progress was last told
}

// Measure writes the values in each way. It fails when one is not there afterwards, or not as it was written, and when
// ctx ends.
func Measure(ctx context.Context, opt Options) ([]Result, error) {
	logging.Disable() // go-redis would write to standard error what is returned as an error
	proxy, err := tripcount.New(opt.Addr)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	network, addr := "tcp", opt.Addr
	if path, ok := strings.CutPrefix(opt.Addr, "unix:"); ok {
		network, addr = "unix", path
	}
	b := &bench{
		Options: opt,
		keys:    keys(opt.Count),
		proxy:   proxy,
		direct:  redis.NewClient(&redis.Options{Network: network, Addr: addr, MaxRetries: -1, DialerRetries: 1}),
	}
	defer b.direct.Close()
	proxy.Delay(opt.RTT)
	var list []Result
	for _, w := range ways {
		r, err := b.measure(ctx, w)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.title, err)
		}
		list = append(list, r)
		list[len(list)-1].Ratio = list[0].MS / r.MS
	}
	return list, nil
}

// What else the machine does can only add to a time. A way that is soon done is therefore repeated, and the fastest run
// counts; a long one has its share of every moment.
const (
	runs   = 5
	enough = 2 * time.Second // of all runs of a way
)

func (b *bench) measure(ctx context.Context, w way) (best Result, err error) {
	b.way = w
	b.say(0)
	var spent time.Duration
	for run := 0; run < runs && spent < enough; run++ {
		r, took, err := b.run(ctx)
		if err != nil {
			return Result{}, err
		}
		if spent += took; run == 0 || r.MS < best.MS {
			best = r
		}
	}
	return best, nil
}

// run writes everything once.
func (b *bench) run(ctx context.Context) (Result, time.Duration, error) {
	defer b.remove(ctx)
	took, err := b.way.write(b, ctx)
	if err != nil {
		return Result{}, 0, err
	}
	if err := b.verify(ctx); err != nil {
		return Result{}, 0, err
	}
	r := Result{
		How: b.way.how, Title: b.way.title, MS: milliseconds(took), Count: b.Count, RTTMS: milliseconds(b.RTT),
		PublishedTitle: b.way.publishedTitle, PublishedMS: b.way.publishedMS, PublishedRatio: b.way.publishedRatio,
	}
	for _, trip := range b.proxy.Trips() {
		r.Trips++
		r.Largest = max(r.Largest, len(trip.Commands))
	}
	return r, took, nil
}

// begin is when a way begins. What went before is not its own: the way before's litter, and the trips by which it
// connected.
func (b *bench) begin() time.Time {
	b.proxy.Reset()
	runtime.GC()
	return time.Now()
}

// every is the least time between two lines of progress.
const every = 5 * time.Second

// say tells how far a way has come, now and then.
func (b *bench) say(done int) {
	if b.Progress == nil || time.Since(b.told) < every {
		return
	}
	b.told = time.Now()
	b.Progress(fmt.Sprintf("%s: %d of %d", b.way.title, done, b.Count))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
