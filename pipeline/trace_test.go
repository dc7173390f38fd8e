package pipeline_test

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// times of a trip are its own.
var times = cmpopts.IgnoreFields(pipeline.Trip{}, "At", "Nanos", "Queued")

// A trip names its owners, requests and keys, the errors of each command and the bytes, and no value.
func TestTripTellsWhoAskedForWhat(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	tracer := pipeline.NewTracer(2)
	b, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 5 * time.Second, Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	for _, caller := range []string{"r1", "r2", "r3"} {
		batch := b.Batch(caller)
		pipeline.Declare(batch, "cache", pipeline.Raw, "SET", "secret-key", "secret-value")
		pipeline.Declare(batch, "limit", pipeline.Raw, "HGETALL", "secret-key")
		pipeline.Declare(batch, "limit", pipeline.Raw, "NOSUCH", "key", "secret-value")
		script := pipeline.Eval(batch, "limit", pipeline.Raw, pipeline.NewScript("s", "return ARGV[1]"), nil, "secret-value")
		pipeline.Declare(batch, "cache", pipeline.Bytes, "GET", "other")
		if _, err := script.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wrong := "WRONGTYPE Operation against a key holding the wrong kind of value"
	noSuch := "ERR unknown command 'NOSUCH', with args beginning with: 'key' 'secret-value' "
	want := pipeline.Trip{
		Kind: pipeline.KindRequest, Server: server.Addr(), Callers: []string{"r3"}, Batches: 1, Size: 5,
		Owners: []pipeline.Portion{
			{
				Owner: "cache", Commands: 2,
				Sent: int64(len("*3\r\n$3\r\nSET\r\n$10\r\nsecret-key\r\n$12\r\nsecret-value\r\n" +
					"*2\r\n$3\r\nGET\r\n$5\r\nother\r\n")),
				Received: int64(len("+OK\r\n" + "$-1\r\n")),
			},
			{
				Owner: "limit", Commands: 3, Errors: 2,
				Sent: int64(len("*2\r\n$7\r\nHGETALL\r\n$10\r\nsecret-key\r\n" +
					"*3\r\n$6\r\nNOSUCH\r\n$3\r\nkey\r\n$12\r\nsecret-value\r\n" +
					"*4\r\n$7\r\nEVALSHA\r\n$40\r\n0123456789012345678901234567890123456789\r\n$1\r\n0\r\n$12\r\nsecret-value\r\n")),
				Received: int64(len("-" + wrong + "\r\n" + "-" + noSuch + "\r\n" + "$12\r\nsecret-value\r\n")),
			},
		},
		Commands: []pipeline.Command{
			{Owner: "cache", Name: "set", Key: "secret-key"},
			{Owner: "limit", Name: "hgetall", Key: "secret-key", Error: wrong},
			{Owner: "limit", Name: "nosuch", Key: "key", Error: "ERR unknown command 'NOSUCH'"},
			{Owner: "limit", Name: "evalsha"},
			{Owner: "cache", Name: "get", Key: "other"},
		},
	}
	for _, p := range want.Owners {
		want.Sent += p.Sent
		want.Received += p.Received
	}
	trips := tracer.Trips()
	if len(trips) != 2 {
		t.Fatalf("%d trips are kept", len(trips))
	}
	want.N = trips[1].N + 1
	if diff := cmp.Diff(want, trips[0], times); diff != "" {
		t.Errorf("the newest trip (-want +got):\n%s", diff)
	}
	if got := trips[0]; got.Nanos <= 0 || got.Queued < 0 || got.Queued > int64(time.Minute) || time.Since(got.At) > time.Minute {
		t.Errorf("times: %+v", got)
	}
}

// relay passes connections on to a server and counts the bytes of both directions.
type relay struct {
	net.Listener
	sent, received atomic.Int64
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go r.copy(server, client, &r.sent)
			go r.copy(client, server, &r.received)
		}
	}()
	return r
}

func (r *relay) copy(to, from net.Conn, count *atomic.Int64) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		count.Add(int64(n)) // before it is passed on: who has the reply finds it counted
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// The bytes of trips are those on the wire, whatever the arguments and the replies are.
func TestBytesAreThoseOnTheWire(t *testing.T) {
	t.Parallel()
	r := newRelay(t, redistest.Start(t).Addr())
	tracer := pipeline.NewTracer(16)
	b, err := pipeline.Open(pipeline.Options{URL: "redis://" + r.Addr().String(), Deadline: 5 * time.Second, Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent, received := r.sent.Load(), r.received.Load()
	batch := b.Batch("r")
	nested := pipeline.NewScript("nested", `return {1, -22, 'OK, it is', {false, redis.status_reply('OK'), redis.error_reply('ERR mine')}, {}}`)
	for _, args := range [][]any{
		{"SET", "text", "123456789 10"}, {"SET", "bytes", []byte("\r\n\x00")}, {"SET", "number", -1234567890}, {"SET", "long", int64(99)},
		{"SET", "float", 0.25}, {"SET", "flag", true}, {"INCRBY", "number", 1}, {"MGET", "text", "absent", "float"}, {"PING"},
		{"LRANGE", "absent", 0, -1}, {"BLPOP", "absent", "0.01"}, {"HGETALL", "text"}, {"GET", "absent"}, {"ECHO", ""},
	} {
		pipeline.Declare(batch, "o", pipeline.Raw, args...)
	}
	if _, err := pipeline.Eval(batch, "o", pipeline.Raw, nested, []string{"text"}, 1.5, []byte("x")).Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent, received = r.sent.Load()-sent, r.received.Load()-received
	var gotSent, gotReceived int64
	for _, trip := range tracer.Trips() {
		gotSent += trip.Sent
		gotReceived += trip.Received
	}
	if gotSent != sent || gotReceived != received {
		t.Errorf("sent %d, received %d; on the wire %d and %d", gotSent, gotReceived, sent, received)
	}
}

// A trip whose callers have gone on is marked when it comes back, and a reply that is of use then is counted.
func TestLateTripIsMarked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	tracer := pipeline.NewTracer(16)
	b, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 100 * time.Millisecond, KeepLate: true, Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	batch := b.Batch("r")
	pipeline.Declare(batch, "o", pipeline.Raw, "PING")
	h := pipeline.Declare(batch, "o", pipeline.Raw, "ECHO", "x")
	got := make(chan any, 1)
	h.Late(func(v any) { got <- v })
	if _, err := h.Get(t.Context()); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Fatalf("err = %v", err)
	}
	if state := b.Nodes(); len(state) != 1 || state[0] != (pipeline.NodeState{Addr: server.Addr(), Answering: true, Late: 1}) {
		t.Errorf("nodes: %+v", state)
	}
	server.Resume()
	if v := <-got; v != "x" {
		t.Errorf("late reply %v", v)
	}
	trips := tracer.Trips()
	if len(trips) != 1 || !trips[0].Late || trips[0].Error != "" || trips[0].Duration() < b.Deadline() {
		t.Errorf("trips: %+v", trips)
	}
	for range 200 {
		if countOf(t, tracer, "tollgate_redis_late_replies_total") == 1 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the late reply is not counted")
}

// countOf is the value of a counter.
func countOf(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// What never left is an error, and no bytes.
func TestTripThatNeverLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	tracer := pipeline.NewTracer(1)
	b, err := pipeline.Open(pipeline.Options{URL: server.URL(), Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	server.Kill()
	if _, err := pipeline.Declare(b.Batch("r"), "o", pipeline.Raw, "PING").Get(t.Context()); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Fatal(err)
	}
	trip := tracer.Trips()[0]
	want := pipeline.Trip{
		N: 2, Kind: pipeline.KindAgain, Server: server.Addr(), Callers: []string{"r"}, Batches: 1, Size: 1, Error: trip.Error,
		Owners:   []pipeline.Portion{{Owner: "o", Commands: 1, Errors: 1}},
		Commands: []pipeline.Command{{Owner: "o", Name: "ping", Error: trip.Error}},
	}
	if diff := cmp.Diff(want, trip, times); diff != "" || trip.Error == "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A deferred trip names the requests whose writes it carries.
func TestDeferredTripNamesRequests(t *testing.T) {
	t.Parallel()
	tracer := pipeline.NewTracer(8)
	server := redistest.Start(t)
	b, err := pipeline.Open(pipeline.Options{URL: server.URL(), Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	w := d.Writes()
	w.For(t.Context(), "r1")
	w.Do("cache", "SET", "a", "1")
	w.Do("cache", "SET", "b", "1")
	w.Close()
	if left, _ := d.Drain(t.Context()); left != 0 {
		t.Fatalf("%d left", left)
	}
	want := []pipeline.Trip{{
		N: 1, Kind: pipeline.KindDeferred, Server: server.Addr(), Callers: []string{"r1"}, Batches: 2, Size: 2, Sent: 54, Received: 10,
		Owners:   []pipeline.Portion{{Owner: "cache", Commands: 2, Sent: 54, Received: 10}},
		Commands: []pipeline.Command{{Owner: "cache", Name: "set", Key: "a"}, {Owner: "cache", Name: "set", Key: "b"}},
	}}
	if diff := cmp.Diff(want, tracer.Trips(), times); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	var trips []pipeline.Trip
	for ms := 1; ms <= 20; ms++ { // 1 to 20 ms, each of two components
		trips = append(trips, pipeline.Trip{Kind: pipeline.KindRequest, Nanos: int64(ms) * 1e6, Callers: []string{"r"}, Owners: []pipeline.Portion{
			{Owner: "limit", Commands: 2, Errors: 1, Sent: 10, Received: 5}, {Owner: "cache", Commands: 1, Sent: 1, Received: 1},
		}})
	}
	trips = append(trips, pipeline.Trip{Kind: pipeline.KindDeferred, Nanos: 1e9, Callers: []string{"q"}, Owners: []pipeline.Portion{{Owner: "cache", Commands: 7}}})
	want := []pipeline.Summary{
		{Owner: "cache", Kind: pipeline.KindDeferred, Trips: 1, Commands: 7, Total: 1e9, P50: 1e9, P95: 1e9, Max: 1e9},
		{Owner: "cache", Kind: pipeline.KindRequest, Trips: 20, Commands: 20, Sent: 20, Received: 20, Total: 210e6, P50: 10e6, P95: 19e6, Max: 20e6},
		{
			Owner: "limit", Kind: pipeline.KindRequest, Trips: 20, Commands: 40, Errors: 20, Sent: 200, Received: 100,
			Total: 210e6, P50: 10e6, P95: 19e6, Max: 20e6,
		},
	}
	if diff := cmp.Diff(want, pipeline.Summarize(trips)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		name   string
		filter pipeline.Filter
		want   int
	}{
		{"all", pipeline.Filter{}, 21},
		{"kind", pipeline.Filter{Kind: pipeline.KindDeferred}, 1},
		{"owner", pipeline.Filter{Owner: "limit"}, 20},
		{"caller", pipeline.Filter{Caller: "q"}, 1},
		{"slow", pipeline.Filter{Slow: 20 * time.Millisecond}, 2},
		{"both", pipeline.Filter{Slow: 20 * time.Millisecond, Caller: "r"}, 1},
		{"none", pipeline.Filter{Kind: pipeline.KindUpkeep}, 0},
	} {
		if got := len(tt.filter.Apply(trips)); got != tt.want {
			t.Errorf("%s: %d trips, want %d", tt.name, got, tt.want)
		}
	}
}
