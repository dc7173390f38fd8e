package redistest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

func TestServerAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if options.Addr != server.Addr() {
		t.Errorf("URL names %s, Addr is %s", options.Addr, server.Addr())
	}
	set(t, server.Client(), "k", "v")
	if got := get(t, server.Client(), "k"); got != "v" {
		t.Errorf("GET k = %q, want v", got)
	}
}

func TestServerArgumentsWin(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "7mb", "--maxmemory-policy", "allkeys-lru")
	got, err := server.Client().ConfigGet(t.Context(), "maxmemory*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if got["maxmemory"] != "7340032" || got["maxmemory-policy"] != "allkeys-lru" {
		t.Errorf("CONFIG GET maxmemory* = %v", got)
	}
}

func TestServerKillAndRestart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args []string
		want string
	}{
		{name: "nothing is kept by default", want: ""},
		{name: "appended", args: []string{"--appendonly", "yes", "--appendfsync", "always"}, want: "v"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, test.args...)
			addr := server.Addr()
			set(t, server.Client(), "k", "v")
			server.Kill()
			server.Kill()
			if err := server.Client().Ping(t.Context()).Err(); err == nil {
				t.Error("a killed server answers PING")
			}
			server.Restart()
			if server.Addr() != addr {
				t.Errorf("address after the restart is %s, was %s", server.Addr(), addr)
			}
			if got := get(t, server.Client(), "k"); got != test.want {
				t.Errorf("GET k after the restart = %q, want %q", got, test.want)
			}
		})
	}
}

func TestServerPauseAndResume(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server.Addr())
	set(t, c, "k", "1")
	server.Pause()
	if err := incr(t, c, "k"); !isTimeout(err) {
		t.Errorf("INCR at a paused server: error is %v, want a timeout", err)
	}
	server.Resume()
	if got := get(t, server.Client(), "k"); got != "2" {
		t.Errorf("GET k = %q, want 2: what was sent to the paused server is executed when it resumes", got)
	}
}

// set and get go through a client and fail the test on an error; a missing key is "".
func set(t *testing.T, client *redis.Client, key, value string) {
	t.Helper()
	if err := client.Set(t.Context(), key, value, 0).Err(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

func get(t *testing.T, client *redis.Client, key string) string {
	t.Helper()
	value, err := client.Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("GET %s: %v", key, err)
	}
	return value
}

// client is a client of one connection without retries, whose calls end with their context.
func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, PoolSize: 1, ReadTimeout: time.Minute, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// incr increments a key and gives up after 200 ms.
func incr(t *testing.T, c *redis.Client, key string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	return c.Incr(ctx, key).Err()
}

// isTimeout accepts the deadline of a context and of the socket that it sets.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
