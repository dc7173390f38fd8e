package limit

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// racer is one process of the race.
type racer struct {
	backend  *pipeline.Backend
	deferred *pipeline.Deferred
}

func newRacer(t *testing.T, backend *pipeline.Backend) *racer {
	t.Helper()
	r := &racer{backend: backend, deferred: pipeline.NewDeferred(backend, pipeline.DeferredOptions{})}
	t.Cleanup(func() { r.deferred.Drain(t.Context()) })
	if err := New(Options{}).Load(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
	return r
}

// ask asks for one admission. When apart, each group's script is a trip of its own after a pause of its own, as between
// the servers of a cluster: on one server the scripts of a pipeline run one behind the other, and groups rarely disagree.
//
// The pause before a group is asked again lasts until all callers have their first answer and every release is there:
// what is tested is the order, not how long a loaded machine takes.
func (r *racer) ask(t *testing.T, ask Ask, apart bool, first *sync.WaitGroup, settled func()) (Verdict, error) {
	l := New(Options{Prefix: "tg", StreamMax: 1000, Clustered: true})
	answered := sync.OnceFunc(first.Done)
	defer answered()
	l.pause = func(time.Duration) {
		answered()
		first.Wait()
		settled()
	}
	if !apart {
		return l.Reserve(r.backend.Batch("race"), ask).Get(t.Context(), r.deferred)
	}
	a := &Admission{limiter: l, ask: ask, asked: time.Now()}
	a.groups = l.split(nil, ask.Scopes, ask.Candidates)
	var both sync.WaitGroup
	for i := range a.groups {
		a.batch = r.backend.Batch("race")
		a.declare(&a.groups[i], ask.ID, l.Now())
		both.Go(func() {
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			_, _ = a.groups[i].reply.Get(t.Context()) // Get below takes the same reply
		})
	}
	both.Wait()
	a.batch = r.backend.Batch("race")
	return a.Get(t.Context(), r.deferred)
}

// race lets fifty callers of five processes compete for room for ten in two groups, and wants that ten get in. It says
// how many were asked again.
func race(t *testing.T, racers []*racer, round int, apart bool) (late int64) {
	t.Helper()
	var scopes []*Scope
	for _, kind := range []string{KindTeam, "user"} {
		scopes = append(scopes, NewScope("tg", Owner{
			Kind: kind, ID: fmt.Sprint("s", round), Home: fmt.Sprint(kind, round, apart), Zone: time.UTC,
			Limits: config.Limits{Budgets: []config.Budget{usd(100, config.Lifetime)}, Parallel: rate(10)},
		}))
	}
	settled := func() {
		for _, r := range racers {
			for r.deferred.Pending() > 0 {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	var granted, again atomic.Int64
	var callers, first sync.WaitGroup
	first.Add(50)
	for i := range 50 {
		callers.Go(func() {
			ask := Ask{Demand: Demand{ID: fmt.Sprint("r", i), Fixed: 10, Want: 10, Least: 10, Choices: 1}, Scopes: scopes}
			v, err := racers[i%len(racers)].ask(t, ask, apart, &first, settled)
			switch {
			case err != nil:
				t.Error(err)
			case v.Grant != nil:
				granted.Add(1)
				if v.Grant.late() {
					again.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := granted.Load(); n != 10 {
		t.Errorf("round %d: %d were admitted, want 10", round, n)
	}
	settled()
	for _, s := range scopes {
		b := racers[0].backend.Batch("race")
		held := pipeline.Declare(b, "race", pipeline.Bytes, "HGET", s.keys[0], "ulifetime.r")
		live := pipeline.Declare(b, "race", pipeline.Raw, "ZCARD", s.keys[1])
		n, err := live.Get(t.Context())
		text, _ := held.Get(t.Context())
		if want := granted.Load(); err != nil || n != want || string(text) != fmt.Sprint(10*want) {
			t.Errorf("round %d: %s holds %s in %v leases (%v), want %d in %d", round, s.Kind, text, n, err, 10*want, want)
		}
	}
	return again.Load()
}

// late says that a group granted when it was asked again.
func (g *Grant) late() bool {
	for _, m := range g.members {
		if len(m) > 0 && m[:len(g.ID)+len(again)] == g.ID+again {
			return true
		}
	}
	return false
}

// Two groups with room for ten each and fifty callers: whoever holds the last place of one group and not of the other
// gives it back, and yet ten get in.
func TestRaceForTheLastPlaces(t *testing.T) {
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprintf("apart=%t", apart), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var racers []*racer
			for range 5 {
				backend := open(t, server.URL())
				t.Cleanup(func() { _ = backend.Close() })
				racers = append(racers, newRacer(t, backend))
			}
			late := int64(0)
			for round := range 20 {
				late += race(t, racers, round, apart)
			}
			if apart && late == 0 {
				t.Error("nobody had to ask again: the race proves nothing")
			}
			t.Logf("%d of 200 were admitted when they asked again", late)
		})
	}
}
