package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// onCluster opens a backend on a cluster whose servers stand behind counting proxies, on warm connections.
func onCluster(t *testing.T, deadline time.Duration) (*pipeline.Backend, *redistest.Cluster) {
	t.Helper()
	c := redistest.StartCluster(t, redistest.Proxied)
	b, err := pipeline.Open(pipeline.Options{URL: c.URL(), Deadline: deadline})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Load(t.Context(), count, once); err != nil {
		t.Fatal(err)
	}
	c.Reset()
	return b, c
}

// spots are hash tags whose slots belong to different masters.
func spots(t *testing.T, c *redistest.Cluster) []string {
	t.Helper()
	var tags []string
	seen := map[*redistest.Node]bool{}
	for i := 0; len(tags) < 3 && i < 1000; i++ {
		tag := fmt.Sprintf("{t%d}", i)
		if n := c.MasterOf(tag); !seen[n] {
			seen[n] = true
			tags = append(tags, tag)
		}
	}
	if len(tags) != 3 {
		t.Fatal("the slots do not belong to three masters")
	}
	return tags
}

func TestClusterIsAskedAtOnce(t *testing.T) {
	t.Parallel()
	b, c := onCluster(t, 5*time.Second)
	tags := spots(t, c)
	for _, n := range c.Nodes {
		n.Proxy.Delay(200 * time.Millisecond)
	}
	batch := b.Batch("r")
	var sums []pipeline.Handle[int64]
	for _, tag := range tags {
		sums = append(sums, pipeline.Eval(batch, "a", integer, count, []string{tag + "n"}))
	}
	missing := pipeline.Declare(batch, "b", pipeline.Bytes, "GET", tags[1]+"nothing")
	begin := time.Now()
	for i, s := range sums {
		if n, err := s.Get(t.Context()); n != 1 || err != nil {
			t.Errorf("server %d: %d, %v", i, n, err)
		}
	}
	if _, err := missing.Get(t.Context()); !errors.Is(err, pipeline.ErrNil) {
		t.Errorf("missing: %v", err)
	}
	if took := time.Since(begin); took > 390*time.Millisecond && batch.Trips() == 1 {
		t.Logf("%s for three servers at 200ms each: one after the other?", took) // a stalled machine does that too
	}
	if batch.Trips() != 1 {
		t.Errorf("%d waits", batch.Trips())
	}
	c.Reset()
}

// A reply that is lost after execution is not asked for again.
func TestClusterSendsAtMostOnce(t *testing.T) {
	t.Parallel()
	b, c := onCluster(t, 5*time.Second)
	tag := spots(t, c)[0]
	node := c.MasterOf(tag)
	for round := range 20 {
		node.Proxy.CutAfter(is("evalsha"))
		_, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{tag + "n"}).Get(t.Context())
		if !errors.Is(err, pipeline.ErrUnavailable) {
			t.Fatalf("a lost reply gave %v", err)
		}
		if n := node.Server.Client().Get(t.Context(), tag+"n").Val(); n != fmt.Sprint(2*round+1) {
			t.Fatalf("round %d: executed %s times", round, n)
		}
		if n, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{tag + "n"}).Get(t.Context()); err != nil || n != int64(2*round+2) {
			t.Fatalf("the next request: %d, %v", n, err)
		}
	}
}

// A slot that has moved is followed, and learned; its neighbours in the batch notice nothing.
func TestClusterFollowsMoved(t *testing.T) {
	t.Parallel()
	b, c := onCluster(t, 5*time.Second)
	tags := spots(t, c)
	ask := func() (*pipeline.Batch, int64) {
		batch := b.Batch("r")
		n := pipeline.Eval(batch, "a", integer, count, []string{tags[0] + "n"})
		other := pipeline.Eval(batch, "a", integer, count, []string{tags[1] + "n"})
		v, err := n.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		return batch, v
	}
	ask()
	c.Reshard(c.MasterOf(tags[0]), c.MasterOf(tags[1]), c.SlotOf(tags[0]))
	if batch, n := ask(); n != 2 || batch.Trips() < 2 || batch.Trips() > 3 { // MOVED, and the script is new there
		t.Errorf("after the move: %d, %d waits", n, batch.Trips())
	}
	if batch, n := ask(); n != 3 || batch.Trips() != 1 {
		t.Errorf("the next time: %d, %d waits", n, batch.Trips())
	}
}

// While a slot is on its way, keys that have gone are asked for where they are, and a command whose keys are in both
// places waits, alone, for no longer than the deadline.
func TestClusterWhileASlotMoves(t *testing.T) {
	t.Parallel()
	b, c := onCluster(t, 300*time.Millisecond)
	tags := spots(t, c)
	client := c.Client()
	for _, k := range []string{"a", "b"} {
		if err := client.Set(t.Context(), tags[0]+k, "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	both := pipeline.NewScript("both", `return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])`)
	if err := b.Load(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	move := c.Move(c.SlotOf(tags[0]), c.MasterOf(tags[1]))
	move.Migrate(tags[0] + "a")
	batch := b.Batch("r")
	gone := pipeline.Declare(batch, "a", pipeline.Bytes, "GET", tags[0]+"a") // ASK
	here := pipeline.Declare(batch, "a", pipeline.Bytes, "GET", tags[0]+"b")
	if v, err := gone.Get(t.Context()); string(v) != "1" || err != nil {
		t.Errorf("what has gone: %q, %v", v, err)
	}
	if v, err := here.Get(t.Context()); string(v) != "1" || err != nil {
		t.Errorf("what is here: %q, %v", v, err)
	}
	begin := time.Now()
	batch = b.Batch("r")
	split := pipeline.Eval(batch, "a", integer, both, []string{tags[0] + "a", tags[0] + "b"}) // TRYAGAIN
	other := pipeline.Declare(batch, "a", pipeline.Raw, "SET", tags[1]+"x", "1")
	if _, err := other.Get(t.Context()); err != nil {
		t.Errorf("its neighbour: %v", err)
	}
	if _, err := split.Get(t.Context()); err == nil {
		t.Error("a script ran whose keys are in two places")
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it waited %s with a deadline of 300ms", took)
	}
	move.Finish()
	n, err := pipeline.Eval(b.Batch("r"), "a", integer, both, []string{tags[0] + "a", tags[0] + "b"}).Get(t.Context())
	if n != 4 || err != nil {
		t.Errorf("afterwards: %d, %v; want 2 + 2", n, err)
	}
}

// A command that waits for a slot on its way is tried for as long as there is time, however often that is; its batch says
// how often it waited.
func TestClusterWaitsForASlot(t *testing.T) {
	t.Parallel()
	b, c := onCluster(t, 20*time.Second)
	tags := spots(t, c)
	if err := c.Client().Set(t.Context(), tags[0]+"a", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	both := pipeline.NewScript("both", `return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])`)
	move := c.Move(c.SlotOf(tags[0]), c.MasterOf(tags[1]))
	batch := b.Batch("r")
	split := pipeline.Eval(batch, "a", integer, both, []string{tags[0] + "a", tags[0] + "absent"}) // TRYAGAIN
	answer := make(chan error, 1)
	go func() {
		n, err := split.Get(context.Background())
		if err == nil && n != 3 {
			err = fmt.Errorf("the sum is %d, want 3", n)
		}
		answer <- err
	}()
	tries := func() (n int) {
		for _, trip := range c.Trips() {
			n += strings.Count(strings.ToUpper(fmt.Sprint(trip.Commands)), "EVAL")
		}
		return n
	}
	for n := 0; tries() < 12 && n < 1000; n++ {
		time.Sleep(10 * time.Millisecond)
	}
	if n := tries(); n < 12 {
		t.Errorf("%d tries", n)
	}
	move.Finish()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if batch.Trips() < 13 {
		t.Errorf("%d waits", batch.Trips())
	}
}

// Slots move and masters die while requests come in and writes go out: counters are exact afterwards, and nobody waits
// beyond the deadline.
func TestClusterUnderLoad(t *testing.T) {
	t.Parallel()
	const deadline = 300 * time.Millisecond
	b, c := onCluster(t, deadline)
	tags := spots(t, c)
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	var wg sync.WaitGroup
	var worst, written, failed atomic.Int64
	stop := make(chan struct{})
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				batch := b.Batch("r")
				var handles []pipeline.Handle[[]byte]
				for _, tag := range tags {
					handles = append(handles, pipeline.Declare(batch, "a", pipeline.Bytes, "GET", fmt.Sprint(tag, "absent", i)))
				}
				begin := time.Now()
				for _, h := range handles {
					if _, err := h.Get(t.Context()); !errors.Is(err, pipeline.ErrNil) {
						failed.Add(1)
					}
				}
				worst.Store(max(worst.Load(), int64(time.Since(begin))))
				w := d.Writes()
				for _, tag := range tags {
					w.Once("test", once, []string{tag + ":w:" + w.Writer(), tag + ":sum"}, 1)
				}
				w.Close()
				written.Add(1)
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	c.Reshard(c.MasterOf(tags[0]), c.MasterOf(tags[1]), c.SlotOf(tags[0]))
	time.Sleep(200 * time.Millisecond)
	c.Reshard(c.MasterOf(tags[0]), c.MasterOf(tags[2]), c.SlotOf(tags[0]))
	time.Sleep(200 * time.Millisecond)
	close(stop)
	wg.Wait()
	drain(t, d)
	if failed.Load() > 0 {
		t.Errorf("%d of %d batches had a command that failed while slots moved", failed.Load(), written.Load())
	}
	if got := time.Duration(worst.Load()); got > deadline+3*time.Second { // a stalled machine; without a bound it is for ever
		t.Errorf("the longest wait was %s", got)
	}
	for _, tag := range tags {
		if v := c.Client().Get(t.Context(), tag+":sum").Val(); v != fmt.Sprint(written.Load()) {
			t.Errorf("%s = %s, want %d", tag, v, written.Load())
		}
	}
}

// A master dies: what belongs to it fails within the deadline, the others go on, and once another has its slots all is
// well without a restart. Replication is asynchronous, so the writes wait for the replica before the master dies.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	b, c := onCluster(t, 300*time.Millisecond)
	tags := spots(t, c)
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	write := func() {
		w := d.Writes()
		for _, tag := range tags {
			w.Once("test", once, []string{tag + ":w:" + w.Writer(), tag + ":sum"}, 1)
		}
		w.Close()
	}
	for range 10 {
		write()
	}
	for d.Pending() > 0 {
		time.Sleep(time.Millisecond)
	}
	c.WaitStable()
	dead := c.KillMaster(tags[0])
	for range 10 {
		write() // two groups get through, one waits
	}
	begin := time.Now()
	_, err := pipeline.Declare(b.Batch("r"), "a", pipeline.Bytes, "GET", tags[0]+"x").Get(t.Context())
	if err == nil || errors.Is(err, pipeline.ErrNil) {
		t.Errorf("a dead master answered: %v", err)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("it took %s to learn that", took)
	}
	if _, err := pipeline.Declare(b.Batch("r"), "a", pipeline.Bytes, "GET", tags[1]+"x").Get(t.Context()); !errors.Is(err, pipeline.ErrNil) {
		t.Errorf("another master: %v", err)
	}
	c.WaitFailover(dead)
	ok := false
	for end := time.Now().Add(5 * time.Second); !ok && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_, err = pipeline.Declare(b.Batch("r"), "a", pipeline.Bytes, "GET", tags[0]+"x").Get(t.Context())
		ok = errors.Is(err, pipeline.ErrNil)
	}
	if !ok {
		t.Errorf("5 s after the failover: %v", err)
	}
	drain(t, d)
	for _, tag := range tags {
		if v := c.Client().Get(t.Context(), tag+":sum").Val(); v != "20" {
			t.Errorf("%s = %s, want 20", tag, v)
		}
	}
}

// A script that a server has lost costs its owner one more trip, and nobody else.
func TestClusterLostScript(t *testing.T) {
	t.Parallel()
	b, c := onCluster(t, 5*time.Second)
	tags := spots(t, c)
	c.MasterOf(tags[0]).Server.Client().ScriptFlush(t.Context())
	batch := b.Batch("r")
	lost := pipeline.Eval(batch, "a", integer, count, []string{tags[0] + "n"})
	kept := pipeline.Eval(batch, "a", integer, count, []string{tags[1] + "n"})
	if n, err := kept.Get(t.Context()); n != 1 || err != nil || batch.Trips() != 1 {
		t.Errorf("kept: %d, %v, %d waits", n, err, batch.Trips())
	}
	if n, err := lost.Get(t.Context()); n != 1 || err != nil || batch.Trips() != 2 {
		t.Errorf("lost: %d, %v, %d waits", n, err, batch.Trips())
	}
}

// Keys of several slots in one script are its author's mistake, and only theirs.
func TestClusterCrossSlot(t *testing.T) {
	t.Parallel()
	b, c := onCluster(t, 5*time.Second)
	tags := spots(t, c)
	batch := b.Batch("r")
	wrong := pipeline.Eval(batch, "a", integer, count, []string{tags[0] + "n", tags[1] + "n"})
	right := pipeline.Eval(batch, "a", integer, count, []string{tags[0] + "n"})
	if _, err := wrong.Get(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "CROSSSLOT") {
		t.Errorf("wrong: %v", err)
	}
	if n, err := right.Get(t.Context()); n != 1 || err != nil {
		t.Errorf("right: %d, %v", n, err)
	}
}

// A cluster that is away fails within the deadline, and is found when it comes.
func TestClusterThatIsAway(t *testing.T) {
	t.Parallel()
	b, err := pipeline.Open(pipeline.Options{URL: "redis+cluster://127.0.0.1:1,127.0.0.1:2", Deadline: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	begin := time.Now()
	_, err = pipeline.Declare(b.Batch("r"), "a", pipeline.Bytes, "GET", "x").Get(context.Background())
	if !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("err = %v", err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
	if err := b.Ping(t.Context()); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("ping: %v", err)
	}
}
