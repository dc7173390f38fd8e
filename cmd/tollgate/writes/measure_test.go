package writes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// empty fails when a Redis still holds something.
func empty(t *testing.T, server *redistest.Server) {
	t.Helper()
	if n := server.Client().DBSize(context.Background()).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// What must hold of every run, however slow the machine is. That all values arrive is for Measure itself to see.
func TestMeasure(t *testing.T) {
	t.Parallel()
	const count, rtt, maxFlush = 200, time.Millisecond, 32
	server := redistest.Start(t)
	got, err := Measure(t.Context(), Options{Addr: server.Addr(), Count: count, RTT: rtt, MaxFlush: maxFlush})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Fatalf("%d ways: %+v", len(got), got)
	}
	for i, r := range got {
		t.Logf("%+v", r)
		if r.How != ways[i].how || r.Count != count || r.RTTMS != 1 {
			t.Errorf("%+v: want %s, %d writes, 1 ms", r, ways[i].how, count)
		}
		if r.MS < float64(r.Trips)*r.RTTMS {
			t.Errorf("%s: %d round trips in %v ms: shorter than each has to be", r.How, r.Trips, r.MS)
		}
		if r.Ratio != got[0].MS/r.MS {
			t.Errorf("%s: ratio %v", r.How, r.Ratio)
		}
	}
	single, pipelined, deferred := got[0], got[1], got[2]
	if single.Trips != count || single.Largest != 1 {
		t.Errorf("one by one: %d round trips, the largest of %d", single.Trips, single.Largest)
	}
	if pipelined.Trips != 1 || pipelined.Largest != count {
		t.Errorf("in one pipeline: %d round trips, the largest of %d", pipelined.Trips, pipelined.Largest)
	}
	// Seven full flushes are the least. A machine that stalls between two writes may add some, never one a write.
	if least := (count + maxFlush - 1) / maxFlush; deferred.Largest > maxFlush || deferred.Trips < least || deferred.Trips > count/4 {
		t.Errorf("deferred: %d round trips, the largest of %d; want %d to %d, of at most %d",
			deferred.Trips, deferred.Largest, least, count/4, maxFlush)
	}
	empty(t, server)
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
	_, err := Measure(ctx, Options{Addr: server.Addr(), Count: 100_000, RTT: 100 * time.Millisecond})
	if !errors.Is(err, stop) {
		t.Errorf("error is %v, want %v", err, stop)
	}
	empty(t, server)
}

func TestMeasureWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	if _, err := Measure(t.Context(), Options{Addr: server.Addr(), Count: 1}); err == nil {
		t.Error("no error without a Redis")
	}
}

func TestVerifyTellsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := &bench{Options: Options{Count: 1002}, keys: keys(1002), direct: server.Client()}
	all := func() {
		for user, key := range b.keys {
			if err := server.Client().Set(t.Context(), key, value(user), 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name  string
		spoil func(*redis.Client) error
		want  string
	}{
		{name: "all there", spoil: func(*redis.Client) error { return nil }},
		{
			name:  "one is missing",
			spoil: func(c *redis.Client) error { return c.Del(t.Context(), b.keys[1001]).Err() },
			want:  "1001 of 1002 values are there: " + b.keys[1001] + " is <nil>, not 1002",
		},
		{
			name:  "one was written twice",
			spoil: func(c *redis.Client) error { return c.IncrBy(t.Context(), b.keys[4], value(4)).Err() },
			want:  "1001 of 1002 values are there: " + b.keys[4] + " is 10, not 5",
		},
	} {
		all()
		if err := test.spoil(server.Client()); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := b.verify(t.Context()); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
