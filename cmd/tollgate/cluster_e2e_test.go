package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// newClusterStores is a cluster of three masters with a replica each, and a proxy before each node.
func newClusterStores(t *testing.T) *stores {
	t.Helper()
	return &stores{t: t, Cluster: redistest.StartCluster(t, redistest.Proxied)}
}

// limited is the model t1 with limits of its own, which have another home than those of keys and teams.
const limited = `
debug: {trips_header: true}
models:
  - name: t1
    deployments:
      - {name: p, url: "PROVIDER/v1", dialect: openai, price: {input: 0, output: 10}, limits: {rpm: 100000, tpm: 100000000, parallel: 1000}}
`

// clusterScene is two replicas on a cluster, for a key, a team and a model with limits of every kind. The team's home is on
// another server than the model's.
type clusterScene struct {
	*stores
	provider *providertest.Provider
	replicas []*replica
	team     string
}

// clusterDeadline is the pipeline's in a clusterScene.
const clusterDeadline = 2 * time.Second

func newClusterScene(t *testing.T, more string) *clusterScene {
	t.Helper()
	x := &clusterScene{stores: newClusterStores(t), provider: providertest.New(t)}
	for i := 0; x.team == "" || x.Cluster.MasterOf(x.home()) == x.Cluster.MasterOf("{m:t1}"); i++ {
		x.team = fmt.Sprint("team", i)
	}
	const limits = "limits: {budgets: [{usd: 100, per: day}, {usd: 1000, per: month}], rpm: 100000, tpm: 100000000, parallel: 1000}"
	text := limited + fmt.Sprintf("teams: [{id: %s, %s}]\nkeys: [{id: k, secret: sk-test-a, team: %s, %s}]\n%s", x.team, limits, x.team, limits, more)
	for range 2 {
		x.replicas = append(x.replicas, startWith(t, x.stores, x.provider, text,
			fmt.Sprintf("deadline: %s, on_failure: {budgets: deny, rates: deny}", clusterDeadline)))
	}
	return x
}

// home is the hash tag of the key and its team.
func (x *clusterScene) home() string { return "{t:" + x.team + "}" }

// written returns when Redis has answered all that was to be written, and every node's replica has it.
func (x *clusterScene) written() {
	x.t.Helper()
	for _, r := range x.replicas {
		waitFor(x.t, "deferred writes to be answered", func() bool { return r.app.gate.Pending() == 0 })
	}
	x.Cluster.WaitStable()
}

// warm sends requests through both replicas until connections, scripts and topology are there, and returns how many.
func (x *clusterScene) warm() int {
	x.t.Helper()
	n := 0
	for range 3 {
		for _, r := range x.replicas {
			passes(x.t, r.chat("sk-test-a", ask(1000)))
			n++
		}
	}
	x.written()
	return n
}

// checkBooks wants the records to be those of n requests of a cent each, and the counters to be their sum.
func (x *clusterScene) checkBooks(n int) {
	x.t.Helper()
	x.written()
	sum := int64(0)
	ids := map[string]bool{}
	for _, r := range x.settled(n) {
		sum += r.CostNano
		ids[r.ID] = true
	}
	if sum != int64(n)*cent || len(ids) != n {
		x.t.Errorf("%d requests in the records, %d nano-dollars; want %d, %d", len(ids), sum, n, int64(n)*cent)
	}
	for _, scope := range []string{"key:k", "team:" + x.team} {
		for _, field := range []string{"uday", "umonth"} {
			x.wantBudget("tg:"+x.home()+":b:"+scope, field, sum, 0)
		}
		if live := x.leases("tg:" + x.home() + ":l:" + scope); live != 0 {
			x.t.Errorf("%s: %d leases are left", scope, live)
		}
	}
	if live := x.leases("tg:{m:t1}:l:deployment:p"); live != 0 {
		x.t.Errorf("the deployment: %d leases are left", live)
	}
}

// answeredWith says whether any server that runs has answered with an error of that name.
func (x *clusterScene) answeredWith(name string) bool {
	for _, n := range x.Cluster.Nodes {
		info, err := n.Server.Client().Info(context.Background(), "errorstats").Result()
		if err == nil && strings.Contains(info, "errorstat_"+name+":") {
			return true
		}
	}
	return false
}

// checkSlots wants no server ever to have been asked for keys of several slots at once.
func (x *clusterScene) checkSlots() {
	x.t.Helper()
	if x.answeredWith("CROSSSLOT") {
		x.t.Errorf("a server has answered CROSSSLOT")
	}
	for _, r := range x.replicas {
		if strings.Contains(r.Log.String(), "CROSSSLOT") {
			x.t.Errorf("the log says CROSSSLOT")
		}
	}
}

// traffic is twenty requests a second, in turn through the replicas, until stop is called.
type traffic struct {
	stop func() (answers []timed)
	mu   sync.Mutex
	list []timed
}

// timed is an answer with when it was asked for and how long that took.
type timed struct {
	sent
	replica int
	at      time.Time
	took    time.Duration
}

func (x *clusterScene) traffic() *traffic {
	l, c := &traffic{}, client(x.t)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			all.Go(func() {
				a := timed{replica: i % len(x.replicas), at: time.Now()}
				a.sent = send(context.Background(), c, x.replicas[a.replica].Envoy.URL(""), "sk-test-a", ask(1000))
				a.took = time.Since(a.at)
				l.mu.Lock()
				defer l.mu.Unlock()
				l.list = append(l.list, a)
			})
		}
	})
	l.stop = func() []timed {
		cancel()
		all.Wait()
		return l.list
	}
	x.t.Cleanup(func() { l.stop() })
	return l
}

// served counts the answers of one replica that are a 200 and were asked for at or after an instant.
func (l *traffic) served(replica int, since time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.list {
		if a.replica == replica && a.Status == 200 && !a.at.Before(since) {
			n++
		}
	}
	return n
}

// checkTraffic wants each answer to be a 200 or, where that may be, a 503, in bounded time. It returns how many were served.
func checkTraffic(t *testing.T, answers []timed, mayFail bool) (served int) {
	t.Helper()
	for _, a := range answers {
		switch {
		case a.err == nil && a.Status == 200:
			served++
		case mayFail && a.err == nil && a.Status == 503:
			storeDown(t, a.answered)
		default:
			t.Errorf("answer = %+v", a)
		}
		if a.took > clusterDeadline+5*time.Second { // its own work, on a machine that stalls
			t.Errorf("an answer of status %d took %s, the deadline is %s", a.Status, a.took, clusterDeadline)
		}
	}
	return served
}

// TestE74Cluster has limits of key, team and model on, in two slots, while a slot moves and a master dies.
func TestE74Cluster(t *testing.T) {
	t.Parallel()
	x := newClusterScene(t, "")
	n := x.warm()
	x.checkBooks(n)

	// The counters' slot moves on and on, and each time stands open for a while, with some of its keys here and some there.
	slot := x.Cluster.SlotOf(x.home())
	l := x.traffic()
	for range 3 {
		move := x.Cluster.Move(slot, x.otherMaster(x.Cluster.OwnerOf(slot)))
		time.Sleep(200 * time.Millisecond)
		move.Migrate(move.Keys(4)...)
		time.Sleep(200 * time.Millisecond)
		move.Finish()
		since := time.Now()
		for i := range x.replicas {
			waitFor(t, "requests after the slot has moved", func() bool { return l.served(i, since) >= 3 })
		}
	}
	n += checkTraffic(t, l.stop(), false)
	x.checkBooks(n)
	x.checkSlots()
	for _, name := range []string{"MOVED", "TRYAGAIN"} {
		if !x.answeredWith(name) {
			t.Errorf("nobody was answered %s: the moves prove nothing", name)
		}
	}

	// Nothing is under way when the master dies, and its replica has it all: nothing may be lost.
	dead := x.Cluster.KillMaster(x.home())
	l = x.traffic()
	x.Cluster.WaitFailover(dead)
	since := time.Now()
	for i := range x.replicas {
		waitFor(t, "requests after the failover", func() bool { return l.served(i, since) > 0 })
		if took := time.Since(since); took > 5*time.Second {
			t.Errorf("replica %d was back %s after the failover, want 5 s at most", i, took)
		}
	}
	during := l.stop()
	served := checkTraffic(t, during, true)
	if n += served; served == len(during) {
		t.Error("no request met the dead master: the failover proves nothing")
	}
	waitFor(t, "the test's own client to know the new master", func() bool {
		x.Cluster.Client().ReloadState(t.Context())
		return x.Cluster.Client().Exists(t.Context(), "tg:"+x.home()+":b:key:k").Err() == nil
	})
	x.checkBooks(n)
	x.checkSlots()
	for _, r := range x.replicas {
		if lost := r.metric("tollgate_deferred_writes_lost_total") + r.metric("tollgate_leases_held"); lost != 0 {
			t.Errorf("%v writes lost or leases held", lost)
		}
	}
}

// otherMaster is a node with slots that is not this one.
func (x *clusterScene) otherMaster(not *redistest.Node) *redistest.Node {
	x.t.Helper()
	for i := 0; ; i++ {
		if n := x.Cluster.MasterOf(fmt.Sprint("{", i, "}")); n != not {
			return n
		}
	}
}

// TestClusterWaitsOnce holds up one server at a time: what a request asks of the other is on its way all the same, so that
// the two are one wait.
func TestClusterWaitsOnce(t *testing.T) {
	t.Parallel()
	x := newClusterScene(t, "cache: {ttl: 60s, scope: team}\n")
	n := x.warm()
	seen := make(chan [][]tripcount.Trip, 1) // by node
	answer := providertest.Chat(providertest.Usage{Prompt: 10})
	x.provider.Script(func(h providertest.Hit) providertest.Reply {
		var trips [][]tripcount.Trip
		for _, n := range x.Cluster.Nodes {
			trips = append(trips, requestTrips(n.Proxy.Trips()))
		}
		seen <- trips
		return answer(h)
	})
	counters, model := x.Cluster.MasterOf(x.home()), x.Cluster.MasterOf("{m:t1}")
	for i, held := range []*redistest.Node{counters, model} {
		other := model
		if held == model {
			other = counters
		}
		x.Cluster.Reset()
		held.Proxy.Stall(true)
		answers := barrier(t, []string{x.replicas[i].Envoy.URL("")}, "sk-test-a", question(fmt.Sprint("number ", i), ""), 1)
		waitFor(t, "the other server to answer", func() bool {
			trips := requestTrips(other.Proxy.Trips())
			return len(trips) == 1 && trips[0].Done
		})
		held.Proxy.Stall(false)
		a := <-answers
		if a.err != nil || a.Status != 200 || a.Header.Get("x-tollgate-trips") != "1" {
			t.Fatalf("answer = %+v, want a 200 after one wait", a)
		}
		n++
		var commands []string
		for i, trips := range <-seen {
			if len(trips) > 1 {
				t.Errorf("node %d saw %d trips before the call, want one at most: %v", i, len(trips), trips)
			}
			for _, trip := range trips {
				for _, cmd := range trip.Commands {
					commands = append(commands, strings.ToUpper(cmd[0]))
				}
			}
		}
		slices.Sort(commands)
		if want := []string{"EVALSHA", "EVALSHA", "GET"}; !slices.Equal(commands, want) { // of the team's home, and the model's
			t.Errorf("commands before the call: %q, want %q", commands, want)
		}
		x.written()
	}
	x.settled(n)
	x.checkSlots()
}

// TestClusterCachedAnswers asks one replica and then the other: answers lie all over the slots.
func TestClusterCachedAnswers(t *testing.T) {
	t.Parallel()
	x := newClusterScene(t, "cache: {ttl: 60s, scope: team}\n")
	const questions = 12
	for i := range questions {
		body := question(fmt.Sprint("question ", i), "")
		first := x.replicas[i%2].chat("sk-test-a", body)
		x.written()
		again := x.replicas[(i+1)%2].chat("sk-test-a", body)
		if first.Status != 200 || first.Header.Get("x-tollgate-cache") != "miss" {
			t.Errorf("the first answer to question %d = %+v, want a miss", i, first)
		}
		if again.Status != 200 || again.Header.Get("x-tollgate-cache") != "hit" || again.Body != first.Body {
			t.Errorf("the second answer to question %d = %+v, want the first one's body from the cache", i, again)
		}
		if trips := again.Header.Get("x-tollgate-trips"); i > 1 && trips != "1" {
			t.Errorf("question %d: the hit waited %s times, want once", i, trips)
		}
	}
	if hits := len(x.provider.Hits()); hits != questions {
		t.Errorf("%d requests reached the provider, want %d", hits, questions)
	}
	x.written()
	sum := int64(0)
	for _, r := range x.settled(2 * questions) {
		sum += r.CostNano
	}
	if sum != questions*cent*9/10 { // 900 tokens each, and nothing for a hit
		t.Errorf("the records say %d nano-dollars, want %d", sum, questions*cent*9/10)
	}
	x.wantBudget("tg:"+x.home()+":b:key:k", "uday", sum, 0)
	x.checkSlots()
}

func TestE01Cluster(t *testing.T) {
	t.Parallel()
	s, p := newClusterStores(t), providertest.New(t)
	a, b := startReplica(t, s, p, limited+roundKeys()), startReplica(t, s, p, limited+roundKeys())
	raceForBudget(t, s, p, []string{a.Envoy.URL(""), b.Envoy.URL("")})
}
