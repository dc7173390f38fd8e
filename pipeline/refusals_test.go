package pipeline_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// A server refuses what it is asked until something is put right; then all is well again, and each deferred write is applied
// once, in order. The error says what is wrong.
func TestServerThatRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		server []string // its arguments
		url    string   // what stands before host:port
		db     string   // and behind it
		mends  []string
		want   string // in the error of a request
		unsent bool   // the request got no reply
	}{
		{
			name: "wrong password", server: []string{"--requirepass", "right"}, url: "redis://:wrong@", db: "/0",
			mends: []string{"ACL", "SETUSER", "default", ">wrong"}, want: "WRONGPASS ", unsent: true,
		},
		{
			name: "wrong user", server: []string{"--requirepass", "right"}, url: "redis://somebody:wrong@", db: "/0",
			mends: []string{"ACL", "SETUSER", "somebody", "on", ">wrong", "~*", "&*", "+@all"}, want: "WRONGPASS ", unsent: true,
		},
		{
			name: "no password", server: []string{"--requirepass", "right"}, url: "redis://", db: "/0",
			mends: []string{"CONFIG", "SET", "requirepass", ""}, want: "NOAUTH ", unsent: true,
		},
		{
			name: "may not run scripts", server: []string{"--requirepass", "right", "--user", "u", "on", ">p", "~*", "&*", "+@all", "-@scripting"},
			url: "redis://u:p@", db: "/0", mends: []string{"ACL", "SETUSER", "u", "+@all"}, want: "NOPERM ",
		},
		{
			name: "may not choose the database", server: []string{"--requirepass", "right", "--user", "u", "on", ">p", "~*", "&*", "+@all", "-select"},
			url: "redis://u:p@", db: "/1", mends: []string{"ACL", "SETUSER", "u", "+@all"}, want: "NOPERM ", unsent: true,
		},
		{
			name: "too few replicas", server: []string{"--requirepass", "right", "--min-replicas-to-write", "1"}, url: "redis://:right@", db: "/0",
			mends: []string{"CONFIG", "SET", "min-replicas-to-write", "0"}, want: "NOREPLICAS ",
		},
		{
			name: "memory is full", server: []string{"--requirepass", "right", "--maxmemory", "1"}, url: "redis://:right@", db: "/0",
			mends: []string{"CONFIG", "SET", "maxmemory", "0"}, want: "OOM ",
		},
		{
			name: "is a replica", server: []string{"--requirepass", "right", "--replicaof", "127.0.0.1 1"}, url: "redis://:right@", db: "/0",
			mends: []string{"REPLICAOF", "NO", "ONE"}, want: "READONLY ",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bothModes(t, func(t *testing.T, eval bool) {
				server := redistest.Start(t, test.server...)
				admin := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "right", Protocol: 2})
				defer admin.Close()
				b, err := pipeline.Open(pipeline.Options{URL: test.url + server.Addr() + test.db, Deadline: 5 * time.Second, Eval: eval})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = b.Close() }()
				d := pipeline.NewDeferred(b, pipeline.DeferredOptions{MaxFlush: 3})
				ask := func() (int64, error) {
					return pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context())
				}
				_, err = ask()
				if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, pipeline.ErrUnavailable) != test.unsent {
					t.Errorf("a request gets %v", err)
				}
				w := d.Writes()
				const writes = 10
				for i := range writes {
					w.Once("test", onceAppends, []string{"w:" + w.Writer(), "list"}, i)
				}
				w.Close()
				time.Sleep(50 * time.Millisecond) // it is tried more than once
				if s := d.Stats(); s.Pending != writes || s.Lost != 0 || s.Refused != 0 {
					t.Fatalf("while it refuses: %+v, want %d pending", s, writes)
				}
				args := make([]any, len(test.mends))
				for i, a := range test.mends {
					args[i] = a
				}
				if err := admin.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
				drain(t, d)
				in := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "right", Protocol: 2, DB: int(test.db[1] - '0')})
				defer in.Close()
				wantList(t, in, writes)
				eventually(t, "a request", func() bool { n, err := ask(); return err == nil && n > 0 })
			})
		})
	}
}

// wantList wants the numbers up to n in the list of applied writes, once each and in order.
func wantList(t *testing.T, c *redis.Client, n int) {
	t.Helper()
	list, err := c.LRange(context.Background(), "list", 0, -1).Result()
	if err != nil || len(list) != n {
		t.Fatalf("%d of %d writes were applied: %v, %v", len(list), n, list, err)
	}
	for i, id := range list {
		if id != strconv.Itoa(i) {
			t.Fatalf("%s was applied in place of %d: %v", id, i, list)
		}
	}
}

// eventually waits for what a busy machine does late.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}
