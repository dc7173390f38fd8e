package redistest_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

func TestProxyPassesSubscriptions(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			server, proxy, client := counted(t)
			subscriber := redis.NewClient(&redis.Options{Addr: proxy.Addr(), Protocol: protocol})
			defer subscriber.Close()
			messages := subscriber.Subscribe(t.Context(), "news", "weather")
			defer messages.Close()
			for range 2 {
				if _, err := messages.Receive(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for _, text := range []string{"one", "two"} {
				if err := server.Client().Publish(t.Context(), "news", text).Err(); err != nil {
					t.Fatal(err)
				}
				message, err := messages.ReceiveMessage(t.Context())
				if err != nil || message.Payload != text {
					t.Fatalf("message is %v, error %v; want %s", message, err, text)
				}
			}
			if err := messages.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			set(t, client, "a", "1")
			if got := commands(proxy.Trips()); !cmp.Equal(got, []string{"set a 1"}) {
				t.Errorf("trips are %q: a subscription is none", got)
			}
			shakes := proxy.Handshakes()
			if last := shakes[len(shakes)-1]; !last.Done || commands(shakes)[len(shakes)-1] != "subscribe news weather" {
				t.Errorf("the last handshake is %+v, want the subscription", last)
			}
			if got := proxy.Connections(); got != 2 {
				t.Errorf("%d connections, want 2", got)
			}
		})
	}
}

// TestProxyQuietUnderMessages: a process that listens to invalidations pings its subscription without end.
func TestProxyQuietUnderMessages(t *testing.T) {
	t.Parallel()
	_, proxy, client := counted(t)
	messages := client.Subscribe(t.Context(), "news")
	defer messages.Close()
	if _, err := messages.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				if err := messages.Ping(t.Context()); err != nil {
					t.Errorf("PING: %v", err)
					return
				}
			}
		}
	}()
	if !proxy.WaitQuiet(300 * time.Millisecond) {
		t.Error("never quiet")
	}
	close(stop)
	<-stopped
}

func TestProxyKeepsTopologyApart(t *testing.T) {
	t.Parallel()
	_, proxy, client := counted(t)
	for _, cmd := range [][]any{{"ROLE"}, {"COMMAND", "COUNT"}} {
		if err := client.Do(t.Context(), cmd...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := commands(proxy.Handshakes()); len(got) != 0 {
		t.Errorf("handshakes are %q, want none on a warm connection", got)
	}
	pipe := client.Pipeline() // on a connection of its own
	pipe.Do(t.Context(), "ROLE")
	pipe.Incr(t.Context(), "n")
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ROLE", "COMMAND COUNT"}, commands(proxy.Topology())); diff != "" {
		t.Errorf("topology (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ROLE; incr n"}, commands(proxy.Trips())); diff != "" {
		t.Errorf("trips (-want +got):\n%s", diff)
	}
}

func TestProxyDoesNotCountReplication(t *testing.T) {
	t.Parallel()
	server, proxy, client := counted(t)
	replica := redistest.Start(t)
	host, port, err := net.SplitHostPort(proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.Client().Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	set(t, client, "k", "v")
	for deadline := time.Now().Add(20 * time.Second); get(t, replica.Client(), "k") != "v"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the replica never had the key")
		}
	}
	if got := commands(proxy.Trips()); !cmp.Equal(got, []string{"set k v"}) {
		t.Errorf("trips are %q, want the client's only", got)
	}
	if got := len(proxy.Handshakes()) + len(proxy.Topology()); got != 0 {
		t.Errorf("%d other trips, want none", got)
	}
	if got := get(t, server.Client(), "warm"); got != "1" {
		t.Errorf("GET warm = %q, want 1", got)
	}
}
