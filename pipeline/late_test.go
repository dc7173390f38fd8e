package pipeline_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// echo says what it got, and remembers that it ran.
var echo = pipeline.NewScript("echo", `redis.call('SADD', KEYS[1], ARGV[1]) return ARGV[1]`)

func text(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", errors.New("reply is no string")
	}
	return s, nil
}

// Trips end about when the deadline does, round after round: each reply reaches its own request, by Get or afterwards by
// Late, once, and no other; what did not run reaches nobody.
func TestLateRepliesReachTheirOwners(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		const deadline, rounds, callers = 10 * time.Millisecond, 150, 12
		b, proxy, server := behindAs(t, pipeline.Options{Eval: eval, Deadline: deadline, KeepLate: true})
		if err := b.Load(t.Context(), echo); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		got, late := map[string]int{}, map[string]int{} // replies by what their request sent
		for round := range rounds {
			proxy.Delay(time.Duration(rand.Int64N(int64(2 * deadline))))
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					batch := b.Batch("r")
					handles := map[string]pipeline.Handle[string]{}
					for k := range 3 {
						id := fmt.Sprintf("%d.%d.%d", round, i, k)
						h := pipeline.Eval(batch, "o", text, echo, []string{"ran"}, id)
						h.Late(func(v string) {
							mu.Lock()
							defer mu.Unlock()
							late[id]++
							if v != id {
								t.Errorf("the late reply to %s is %s", id, v)
							}
						})
						handles[id] = h
					}
					for id, h := range handles {
						switch v, err := h.Get(t.Context()); {
						case err == nil && v == id:
							mu.Lock()
							got[id]++
							mu.Unlock()
						case err == nil:
							t.Errorf("the reply to %s is %s", id, v)
						case !errors.Is(err, pipeline.ErrUnavailable):
							t.Errorf("%s: %v", id, err)
						}
					}
				})
			}
			wg.Wait()
			if n := proxy.Connections(); n > 24 {
				t.Errorf("%d connections, 24 may be open", n)
			}
			eventually(t, "the late replies of a round", func() bool { // so that too many are never late together
				n := server.Client().SCard(t.Context(), "ran").Val()
				mu.Lock()
				defer mu.Unlock()
				return int64(len(got)+len(late)) == n
			})
		}
		ran := server.Client().SMembers(t.Context(), "ran").Val()
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ran {
			if got[id]+late[id] != 1 {
				t.Errorf("%s ran: %d replies in time, %d late, want one", id, got[id], late[id])
			}
		}
		if len(got)+len(late) != len(ran) || len(late) == 0 || len(got) == 0 {
			t.Errorf("%d ran, %d replies in time, %d late", len(ran), len(got), len(late))
		}
	})
}

// A black hole: what is sent into it is bounded, however many callers there are, and what comes out of it later reaches its
// owners and nobody else.
func TestStallIsBounded(t *testing.T) {
	t.Parallel()
	b, proxy, server := behindAs(t, pipeline.Options{Deadline: 20 * time.Millisecond, KeepLate: true})
	if err := b.Load(t.Context(), echo); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	late := map[string]int{}
	var unanswered atomic.Int64
	ask := func(id string) {
		h := pipeline.Eval(b.Batch("r"), "o", text, echo, []string{"ran"}, id)
		h.Late(func(v string) {
			mu.Lock()
			defer mu.Unlock()
			late[id]++
			if v != id {
				t.Errorf("the late reply to %s is %s", id, v)
			}
		})
		v, err := h.Get(t.Context())
		switch {
		case err == nil && v != id:
			t.Errorf("the reply to %s is %s", id, v)
		case errors.Is(err, pipeline.ErrUnavailable):
			unanswered.Add(1)
		case err != nil:
			t.Errorf("%s: %v", id, err)
		}
	}
	for round := range 5 {
		proxy.Stall(true)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for k := range 20 {
					ask(fmt.Sprintf("%d.%d.%d", round, i, k))
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		if n := proxy.Connections(); n > 24 {
			t.Errorf("%d connections, 24 may be open", n)
		}
		proxy.Stall(false)
		eventually(t, "the server", func() bool {
			h := pipeline.Eval(b.Batch("r"), "o", text, echo, []string{"ran"}, "after")
			_, err := h.Get(t.Context())
			return err == nil
		})
		proxy.WaitQuiet(50 * time.Millisecond)
	}
	if n := unanswered.Load(); n == 0 {
		t.Error("all were answered: the test shows nothing")
	}
	ran := map[string]bool{}
	for _, id := range server.Client().SMembers(t.Context(), "ran").Val() {
		ran[id] = true
	}
	mu.Lock()
	defer mu.Unlock()
	for id, n := range late {
		if n != 1 || !ran[id] {
			t.Errorf("%s reached Late %d times; it ran: %v", id, n, ran[id])
		}
	}
	if len(late) == 0 {
		t.Error("nothing came late: the test shows nothing")
	}
}

// A server that is stopped accepts, and never answers. The first requests wait for their deadline, then all fail at once
// but for a probe in each pause; when it goes on, so does everybody.
func TestServerThatIsStopped(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, eval bool) {
		const deadline = 50 * time.Millisecond
		b, proxy, server := behindAs(t, pipeline.Options{Eval: eval, Deadline: deadline, KeepLate: true})
		ask := func() error {
			_, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{"n"}).Get(t.Context())
			return err
		}
		eventually(t, "the server", func() bool { return ask() == nil })
		server.Pause()
		resumed := false
		defer func() {
			if !resumed {
				server.Resume()
			}
		}()
		proxy.Reset()
		begun := time.Now()
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				for time.Since(begun) < time.Second {
					if err := ask(); !errors.Is(err, pipeline.ErrUnavailable) {
						t.Errorf("a stopped server answers: %v", err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		took := time.Since(begun)
		if b.Answering() {
			t.Error("the breaker is closed")
		}
		// Three to open the breaker, as many more as were under way then, and one in each pause of 250 ms.
		trips := int64(len(proxy.Trips()) + len(proxy.Handshakes()))
		if most := 3 + 16 + int64(took/(250*time.Millisecond)) + 1; trips > most {
			t.Errorf("%d trips in %s, at most %d", trips, took, most)
		}
		if n := proxy.Connections(); n > 24 {
			t.Errorf("%d connections, 24 may be open", n)
		}
		server.Resume()
		resumed = true
		eventually(t, "the server", func() bool { return ask() == nil })
		for range 100 {
			if err := ask(); err != nil && !strings.Contains(err.Error(), "deadline") { // a machine that stalls
				t.Errorf("afterwards: %v", err)
			}
		}
	})
}

// A lone trip to a server that was quick ends at the deadline. From then on the server counts as slow, and what it answers
// late finds its owner.
func TestFirstLateReplyIsLost(t *testing.T) {
	t.Parallel()
	b, proxy, server := behindAs(t, pipeline.Options{Deadline: 50 * time.Millisecond})
	if err := b.Load(t.Context(), echo); err != nil {
		t.Fatal(err)
	}
	late := make(chan string, 4)
	ask := func(id string) {
		h := pipeline.Eval(b.Batch("r"), "o", text, echo, []string{"ran"}, id)
		h.Late(func(v string) { late <- v })
		if _, err := h.Get(t.Context()); !errors.Is(err, pipeline.ErrUnavailable) {
			t.Errorf("%s: %v", id, err)
		}
	}
	proxy.Stall(true)
	ask("first")
	ask("second")
	proxy.Stall(false)
	if v := <-late; v != "second" {
		t.Errorf("late reply %q, want that of the second", v)
	}
	eventually(t, "the second to have run", func() bool { return server.Client().SCard(t.Context(), "ran").Val() >= 1 })
	select {
	case v := <-late:
		t.Errorf("another late reply: %q", v)
	case <-time.After(50 * time.Millisecond):
	}
}
