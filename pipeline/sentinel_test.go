package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// replicated returns once the replica has all that the master had: the marker is written last.
func replicated(t *testing.T, s *redistest.Sentinel, marker string) {
	t.Helper()
	master := s.Master()
	one := redis.NewClient(&redis.Options{Addr: master.Server.Addr(), PoolSize: 1}) // WAIT is for what its connection wrote
	defer func() { _ = one.Close() }()
	if err := one.Set(t.Context(), marker, "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := one.Wait(t.Context(), 1, time.Minute).Result(); n != 1 || err != nil {
		t.Fatalf("WAIT: %d, %v", n, err)
	}
}

// follows waits until a backend reads from the new master: it has a key that nobody else has been given.
func follows(t *testing.T, b *pipeline.Backend, master *redistest.Node, marker string) {
	t.Helper()
	if err := master.Server.Client().Set(t.Context(), marker, "new", 0).Err(); err != nil {
		t.Fatal(err)
	}
	returns(t, "requests to the new master", func() error {
		v, err := pipeline.Declare(b.Batch("r"), "o", pipeline.Bytes, "GET", marker).Get(t.Context())
		if err == nil && string(v) != "new" {
			err = errors.New("it reads from the old master")
		}
		return err
	})
	returns(t, "writes", func() error { return counts(t, b, "n") })
	for range 100 { // READONLY, or anything else, has an end
		if err := counts(t, b, "n"); err != nil {
			t.Errorf("once it works: %v", err)
		}
	}
}

// flushed waits until every write was answered.
func flushed(t *testing.T, d *pipeline.Deferred) {
	t.Helper()
	returns(t, "writes are answered", func() error {
		if d.Pending() > 0 {
			return errors.New("some are pending")
		}
		return nil
	})
}

// A master dies and another takes its place: requests fail within the deadline until then, writes wait, and nobody starts
// anything anew. Replication is asynchronous, so what is to survive has reached the replica before the master dies.
func TestSentinelNamesAnotherMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	b := open(t, pipeline.Options{URL: s.URL(), Deadline: 300 * time.Millisecond})
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	for range 10 {
		add(d, 1)
	}
	flushed(t, d)
	if err := counts(t, b, "n"); err != nil {
		t.Fatal(err)
	}
	replicated(t, s, "before")
	old := s.KillMaster()
	for range 10 {
		add(d, 1)
	}
	begin := time.Now()
	if err := counts(t, b, "n"); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("a dead master answered: %v", err)
	}
	if took := time.Since(begin); took > 3*time.Second { // a stalled machine
		t.Errorf("it took %s to learn that with a deadline of 300ms", took)
	}
	follows(t, b, s.WaitMaster(old), "after")
	drain(t, d)
	if got := sum(t, s.Master().Server, "sum"); got != "20" {
		t.Errorf("sum = %s, want 20", got)
	}
}

// A failover while the old master runs on and, for want of permission to make it a replica, believes that it still is the
// master: the backend hears of the new one from the sentinels, not from the old one.
func TestSentinelFailoverWithTheOldMasterAlive(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	b := open(t, pipeline.Options{URL: s.URL(), Deadline: 300 * time.Millisecond})
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	for range 10 {
		add(d, 1)
	}
	flushed(t, d)
	replicated(t, s, "before")
	permit := func(rules ...any) {
		t.Helper()
		if err := s.Nodes[0].Server.Client().Do(t.Context(), append([]any{"ACL", "SETUSER", "default"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	permit("-replicaof", "-slaveof")
	old := s.Failover()
	if old != s.Nodes[0] {
		t.Fatal("the first node was not the master")
	}
	follows(t, b, s.WaitMaster(old), "after")
	for range 10 {
		add(d, 1)
	}
	flushed(t, d)
	if role := old.Role(); role != "master" {
		t.Errorf("the old master is a %s: the test shows nothing", role)
	}
	permit("+replicaof", "+slaveof")
	s.WaitStable() // the old one is a replica now, and what only it had is gone
	if err := counts(t, b, "n"); err != nil {
		t.Errorf("with the old master a replica: %v", err)
	}
	drain(t, d)
	if got := sum(t, s.Master().Server, "sum"); got != "20" {
		t.Errorf("sum = %s, want 20", got)
	}
}

// A sentinel that hangs and one that is dead hold nobody up, at the start and in a failover.
func TestSentinelsThatAreAway(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	s.Sentinels[0].Pause()
	early := open(t, pipeline.Options{URL: s.URL(), Deadline: 300 * time.Millisecond})
	returns(t, "requests past a sentinel that hangs", func() error { return counts(t, early, "n") })
	replicated(t, s, "before")
	old := s.KillMaster()
	master := s.WaitMaster(old)
	follows(t, early, master, "after")
	s.Sentinels[1].Kill()
	late := open(t, pipeline.Options{URL: s.URL(), Deadline: 300 * time.Millisecond})
	returns(t, "requests past two that are away", func() error { return counts(t, late, "n") })
	s.Sentinels[0].Resume()
}

// Without a sentinel that knows the master nothing is asked of anybody, the error says why, and no write passes for
// answered: go-redis gives the error of a key that is not there.
func TestMasterThatNoSentinelKnows(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	wrong := strings.Replace(s.URL(), "/"+redistest.MasterName+"/", "/nobody/", 1)
	b := open(t, pipeline.Options{URL: wrong, Deadline: 2 * time.Second})
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	add(d, 1)
	want := `knows no master "nobody"`
	_, err := pipeline.Declare(b.Batch("r"), "o", pipeline.Bytes, "GET", "x").Get(t.Context())
	for what, err := range map[string]error{"get": err, "ping": b.Ping(t.Context()), "policy": b.CheckMemoryPolicy(t.Context())} {
		if !errors.Is(err, pipeline.ErrUnavailable) || errors.Is(err, pipeline.ErrNil) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %s", what, err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if left, lost := d.Drain(ctx); left != 1 || lost != 1 {
		t.Errorf("%d writes are left and %d of them lost, want the one", left, lost)
	}
}
