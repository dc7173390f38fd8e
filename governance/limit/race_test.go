package limit

import (
	"fmt"
	"math/rand/v2"
	"sync"
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

// manner is how the callers of a race go about it.
type manner struct {
	// apart makes each group's script a trip of its own after a pause of its own, as between the servers of a cluster: on
	// one server the scripts of a pipeline run one behind the other, and groups rarely disagree.
	apart bool
	// real leaves the pauses before a group is asked again as they are. Else each lasts until all callers have their first
	// answer and every release is there: then what is tested is the order, not how long a loaded machine takes.
	real bool
}

// ask asks for one admission.
func (r *racer) ask(t *testing.T, ask Ask, how manner, first *sync.WaitGroup, settled func()) (Verdict, error) {
	l := New(Options{Prefix: "tg", StreamMax: 1000, Clustered: true})
	answered := sync.OnceFunc(first.Done)
	defer answered()
	if !how.real {
		l.pause = func(time.Duration) {
			answered()
			first.Wait()
			settled()
		}
	}
	if !how.apart {
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

// race lets fifty callers of five processes compete for room for ten in two groups, and wants that ten get in, and that
// the counters are exact while they hold their places and when they have given them back. It says how many were asked
// again.
func race(t *testing.T, racers []*racer, round int, how manner) (late int64) {
	t.Helper()
	var scopes []*Scope
	for _, kind := range []string{KindTeam, "user"} {
		scopes = append(scopes, NewScope("tg", Owner{
			Kind: kind, ID: fmt.Sprint("s", round), Home: fmt.Sprint(kind, round, how.apart), Zone: time.UTC,
			Limits: config.Limits{Budgets: []config.Budget{usd(100, config.Lifetime)}, Parallel: rate(10)},
		}))
	}
	settled := func() {
		for _, r := range racers {
			flushed(t, r.deferred)
		}
	}
	grants := make([]*Grant, 50)
	var callers, first sync.WaitGroup
	first.Add(len(grants))
	for i := range grants {
		callers.Go(func() {
			ask := Ask{Demand: Demand{ID: fmt.Sprint("r", i), Fixed: 10, Want: 10, Least: 10, Choices: 1}, Scopes: scopes}
			v, err := racers[i%len(racers)].ask(t, ask, how, &first, settled)
			if grants[i] = v.Grant; err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	granted := int64(0)
	for _, g := range grants {
		if g != nil {
			granted++
			if g.late() {
				late++
			}
		}
	}
	if granted != 10 {
		t.Errorf("round %d: %d were admitted, want 10", round, granted)
	}
	settled()
	racers[0].holds(t, round, scopes, 0, granted)
	for i, g := range grants {
		if g != nil {
			w := racers[i%len(racers)].deferred.Writes()
			g.Settle(w, Ending{Nano: 9})
			w.Close()
		}
	}
	settled()
	racers[0].holds(t, round, scopes, 9*granted, 0)
	return late
}

// holds wants so much to be spent of each scope, and so many leases of ten nano-dollars each.
func (r *racer) holds(t *testing.T, round int, scopes []*Scope, spent, leases int64) {
	t.Helper()
	for _, s := range scopes {
		b := r.backend.Batch("race")
		fields := pipeline.Declare(b, "race", pipeline.Raw, "HMGET", s.keys[0], "ulifetime.s", "ulifetime.r")
		live := pipeline.Declare(b, "race", pipeline.Raw, "ZCARD", s.keys[1])
		n, err := live.Get(t.Context())
		got, _ := fields.Get(t.Context())
		if want := fmt.Sprint([]any{fmt.Sprint(spent), fmt.Sprint(10 * leases)}); err != nil || n != leases || fmt.Sprint(got) != want {
			t.Errorf("round %d: %s has spent and holds %v in %v leases (%v), want %s in %d", round, s.Kind, got, n, err, want, leases)
		}
	}
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
			late := races(t, redistest.Start(t).URL(), manner{apart: apart})
			if apart && late == 0 {
				t.Error("nobody had to ask again: the race proves nothing")
			}
		})
	}
}

// races runs twenty races of five processes.
func races(t *testing.T, url string, how manner) (late int64) {
	t.Helper()
	var racers []*racer
	for range 5 {
		backend := open(t, url)
		t.Cleanup(func() { _ = backend.Close() })
		racers = append(racers, newRacer(t, backend))
	}
	for round := range 20 {
		late += race(t, racers, round, how)
	}
	t.Logf("%d of 200 were admitted when they asked again", late)
	return late
}
