package limit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// onRealCluster makes a bench on a cluster whose servers stand behind proxies.
func onRealCluster(t *testing.T) (*bench, *redistest.Cluster) {
	t.Helper()
	c := redistest.StartCluster(t, redistest.Proxied)
	b := newBench(t, open(t, c.URL()), true)
	c.Reset()
	return b, c
}

// homes are three homes on three servers.
func homes(t *testing.T, c *redistest.Cluster) []string {
	t.Helper()
	var list []string
	seen := map[*redistest.Node]bool{}
	for i := 0; len(list) < 3 && i < 1000; i++ {
		home := fmt.Sprint("o:", i)
		if n := c.MasterOf("{" + home + "}"); !seen[n] {
			seen[n] = true
			list = append(list, home)
		}
	}
	if len(list) != 3 {
		t.Fatal("the slots do not belong to three masters")
	}
	return list
}

// The servers of a cluster decide each for itself, and pauses take as long as they do.
func TestRaceOnCluster(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprintf("apart=%t", apart), func(t *testing.T) {
			t.Parallel()
			late := races(t, redistest.StartCluster(t).URL(), manner{real: true, apart: apart})
			if apart && late == 0 {
				t.Error("nobody had to ask again: the race proves nothing")
			}
		})
	}
}

// One user acts in three orgs, each on a server of its own, and all at once: the user's budget is spent once.
func TestUserOfThreeOrgsOnCluster(t *testing.T) {
	t.Parallel()
	b, c := onRealCluster(t)
	user := at("u:ada", "user", "ada", config.Limits{Budgets: []config.Budget{usd(300, config.Month)}})
	var keys []*Scope
	for _, org := range homes(t, c) {
		keys = append(keys, at(org, KindKey, "k-"+org, config.Limits{Budgets: []config.Budget{usd(1_000_000, config.Month)}}))
	}
	verdicts := make([]Verdict, 45)
	var callers sync.WaitGroup
	for i := range verdicts {
		ask := Ask{Demand: b.costing(30), Scopes: []*Scope{keys[i%3], user}}
		callers.Go(func() {
			var err error
			if verdicts[i], err = b.limiter.Reserve(b.backend.Batch("test"), ask).Get(t.Context(), b.deferred); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	spent := make([]int64, 3)
	total := int64(0)
	for i, v := range verdicts {
		if v.Grant == nil {
			if len(v.Failures) != 1 || v.Failures[0].Scope != user {
				t.Errorf("refused by %+v, want the user's budget", v.Failures)
			}
			continue
		}
		b.settle(v.Grant, Ending{Nano: 30})
		spent[i%3] += 30
		total += 30
	}
	if total != 300 {
		t.Errorf("%d nano-dollars were admitted, want 300", total)
	}
	b.flushed()
	b.want(user.keys[0], map[string]string{"umonth.s": "300", "umonth.r": "0"})
	for i, key := range keys {
		b.want(key.keys[0], map[string]string{"umonth.s": fmt.Sprint(spent[i]), "umonth.r": "0"})
		v, trips := b.try(Ask{Demand: b.costing(1), Scopes: []*Scope{key, user}})
		if f := refusedBy(b, v, FailBudget, user); !f.Spent() || trips != 1 {
			t.Errorf("failure %+v after %d waits, want a spent budget after one", f, trips)
		}
		if left := b.members(key.keys[1]); len(left) != 0 {
			t.Errorf("leases left: %v", left)
		}
	}
}

// The books stay exact when every scope has a server of its own.
func TestRandomWalkOnCluster(t *testing.T) {
	t.Parallel()
	b, _ := onRealCluster(t)
	walk(b, 3, 3)
}

// The reply to one group's admission is lost, whichever it is: that group has counted once, what the others granted is
// released, and the error is the admission's. What was counted comes back when its lease runs out.
func TestLostReplyOfOneGroupOnCluster(t *testing.T) {
	t.Parallel()
	b, c := onRealCluster(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	list := homes(t, c)
	for round := range 12 {
		limits := config.Limits{Budgets: []config.Budget{usd(100, config.Day)}, RPM: rate(100), Parallel: rate(10)}
		var scopes []*Scope
		for i, kind := range []string{KindKey, KindTeam, "user"} {
			scopes = append(scopes, at(list[i], kind, fmt.Sprint("s", round), limits))
		}
		cut := rnd.IntN(3)
		c.Reset()
		d := b.costing(10)
		for _, n := range c.Nodes {
			n.Proxy.CutAfter(func(cmd []string) bool { return admits(cmd, scopes[cut]) })
		}
		v, err := b.limiter.Reserve(b.backend.Batch("test"), Ask{Demand: d, Scopes: scopes}).Get(t.Context(), b.deferred)
		if v.Grant != nil || !errors.Is(err, pipeline.ErrUnavailable) {
			t.Fatalf("verdict %+v, error %v", v, err)
		}
		b.flushed()
		for i, s := range scopes {
			requests, reserved, leases := 0, "0", 0
			if i == cut {
				requests, reserved, leases = 1, "10", 1
			}
			b.want(s.keys[0], map[string]string{"uday.s": "0", "uday.r": reserved})
			b.want(s.keys[1], map[string]string{"w": fmt.Sprintf("%d:%d:%d", b.ms/5000, requests, 10*requests)})
			if left := b.members(s.keys[2]); len(left) != leases {
				t.Errorf("%s has the leases %v, want %d", s.Kind, left, leases)
			}
			if n := asked(c, s); n != 1 {
				t.Errorf("%s was asked %d times, want once", s.Kind, n)
			}
		}
		b.ms += leaseTime.Milliseconds() + 1
		v = b.reserve(b.costing(10), scopes...)
		b.settle(granted(b, v), Ending{})
		var want []Lost
		if cut == 0 { // the note, for which a lease is reported, is in the first scope's
			want = []Lost{{ID: d.ID, Note: "k", Nano: 10}}
		}
		if diff := cmp.Diff(want, v.Lost); diff != "" {
			t.Errorf("round %d, cut %d: %s", round, cut, diff)
		}
		for _, s := range scopes {
			b.want(s.keys[0], map[string]string{"uday.s": "0", "uday.r": "0"})
		}
	}
	if n := b.limiter.InFlight(); n != 0 {
		t.Errorf("%d grants are held", n)
	}
}

// asked is how many admissions of a scope have passed the proxies.
func asked(c *redistest.Cluster, s *Scope) int {
	n := 0
	for _, trip := range c.Trips() {
		for _, cmd := range trip.Commands {
			if admits(cmd, s) {
				n++
			}
		}
	}
	return n
}

// admits says whether a command is the admission of a group whose first scope is s.
func admits(cmd []string, s *Scope) bool {
	return strings.EqualFold(cmd[0], "evalsha") && len(cmd) > 3 && cmd[3] == s.keys[0]
}
