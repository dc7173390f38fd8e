package redistest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// counted is a warm client of a real Redis through a proxy that has forgotten the handshake.
func counted(t *testing.T) (*redistest.Server, *redistest.Proxy, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := client(t, proxy.Addr())
	set(t, c, "warm", "1")
	proxy.Reset()
	return server, proxy, c
}

// commands are the commands of each trip, joined.
func commands(trips []tripcount.Trip) []string {
	var all []string
	for _, trip := range trips {
		var words []string
		for _, cmd := range trip.Commands {
			words = append(words, strings.Join(cmd, " "))
		}
		all = append(all, strings.Join(words, "; "))
	}
	return all
}

func TestProxyCountsTrips(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		run  func(t *testing.T, client *redis.Client) error
		want []string
	}{
		{
			name: "one command",
			run: func(t *testing.T, client *redis.Client) error {
				return client.Set(t.Context(), "a", "1", 0).Err()
			},
			want: []string{"set a 1"},
		},
		{
			name: "two commands one after the other",
			run: func(t *testing.T, client *redis.Client) error {
				if err := client.Set(t.Context(), "a", "1", 0).Err(); err != nil {
					return err
				}
				return client.Incr(t.Context(), "a").Err()
			},
			want: []string{"set a 1", "incr a"},
		},
		{
			name: "a pipeline",
			run: func(t *testing.T, client *redis.Client) error {
				_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
					pipe.Set(t.Context(), "a", "1", 0)
					pipe.HGetAll(t.Context(), "h")
					pipe.Incr(t.Context(), "a")
					return nil
				})
				return err
			},
			want: []string{"set a 1; hgetall h; incr a"},
		},
		{
			name: "a transaction",
			run: func(t *testing.T, client *redis.Client) error {
				_, err := client.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
					pipe.Incr(t.Context(), "a")
					return nil
				})
				return err
			},
			want: []string{"multi; incr a; exec"},
		},
		{
			name: "an error is a reply",
			run: func(t *testing.T, client *redis.Client) error {
				if err := client.EvalSha(t.Context(), strings.Repeat("0", 40), nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
					return fmt.Errorf("EVALSHA of no script: %w", err)
				}
				return client.Ping(t.Context()).Err()
			},
			want: []string{"evalsha " + strings.Repeat("0", 40) + " 0", "ping"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, proxy, client := counted(t)
			if err := test.run(t, client); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, commands(proxy.Trips())); diff != "" {
				t.Errorf("trips (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProxyKeepsHandshakesApart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	set(t, client(t, proxy.Addr()), "a", "1")
	if got := commands(proxy.Trips()); !cmp.Equal(got, []string{"set a 1"}) {
		t.Errorf("trips are %q", got)
	}
	shakes := commands(proxy.Handshakes())
	if len(shakes) == 0 || !strings.HasPrefix(shakes[0], "hello 3") {
		t.Errorf("handshakes are %q, want HELLO among them", shakes)
	}
	proxy.Reset()
	if got := len(proxy.Trips()) + len(proxy.Handshakes()); got != 0 {
		t.Errorf("%d trips after Reset", got)
	}
}

func TestProxyMeasuresTrips(t *testing.T) {
	t.Parallel()
	_, proxy, client := counted(t)
	before := time.Now()
	value := strings.Repeat("v", 100_000)
	set(t, client, "big", value)
	if got := get(t, client, "big"); got != value {
		t.Errorf("a value of %d bytes came back with %d", len(value), len(got))
	}
	trips := proxy.Trips()
	if len(trips) != 2 {
		t.Fatalf("%d trips, want 2", len(trips))
	}
	write, read := trips[0], trips[1]
	if write.Conn != 1 || read.Conn != 1 {
		t.Errorf("connections are %d and %d, want 1", write.Conn, read.Conn)
	}
	if write.At.Before(before) || read.At.Before(write.At) {
		t.Errorf("times are %v and %v, after %v", write.At, read.At, before)
	}
	wantBytes := len("*3\r\n$3\r\nset\r\n$3\r\nbig\r\n$100000\r\n\r\n") + len(value)
	if write.Bytes != wantBytes || write.ReplyBytes != len("+OK\r\n") || !write.Done {
		t.Errorf("SET: %d bytes, %d of reply, done %v; want %d, 5, true", write.Bytes, write.ReplyBytes, write.Done, wantBytes)
	}
	if got := len(write.Commands[0][2]); got != 256 {
		t.Errorf("%d bytes of the value are kept, want 256", got)
	}
}

func TestProxyBigPipeline(t *testing.T) {
	t.Parallel()
	_, proxy, client := counted(t)
	const writes = 5000
	replies, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range writes {
			pipe.Set(t.Context(), fmt.Sprintf("key-%d", i), i, 0)
		}
		return nil
	})
	if err != nil || len(replies) != writes {
		t.Fatalf("%d replies, error %v", len(replies), err)
	}
	var seen int
	for _, trip := range proxy.Trips() {
		seen += len(trip.Commands)
	}
	if seen != writes {
		t.Errorf("%d commands seen, want %d", seen, writes)
	}
}

func TestProxyWaitQuiet(t *testing.T) {
	t.Parallel()
	_, proxy, client := counted(t)
	go func() {
		time.Sleep(30 * time.Millisecond)
		client.Incr(t.Context(), "late")
	}()
	if !proxy.WaitQuiet(500 * time.Millisecond) {
		t.Error("never quiet")
	}
	if got := commands(proxy.Trips()); !cmp.Equal(got, []string{"incr late"}) {
		t.Errorf("trips are %q, want the late one too", got)
	}
}
