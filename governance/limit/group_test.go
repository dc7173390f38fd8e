package limit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/usage"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// at makes a scope at a home of its own choice.
func at(home, kind, id string, l config.Limits) *Scope {
	return NewScope("tg", Owner{Kind: kind, ID: id, Home: home, Limits: l, Zone: time.UTC})
}

// state is everything that the scopes keep in Redis.
func (b *bench) state(scopes ...*Scope) string {
	b.Helper()
	var all strings.Builder
	for _, s := range scopes {
		for i, key := range s.keys {
			batch := b.backend.Batch("test")
			if s.has[i] == 'l' {
				fmt.Fprintln(&all, key, b.list(pipeline.Declare(batch, "test", pipeline.Raw, "ZRANGE", key, "0", "-1", "WITHSCORES")))
			} else {
				fmt.Fprintln(&all, key, b.fields(pipeline.Declare(batch, "test", pipeline.Raw, "HGETALL", key)))
			}
			fmt.Fprintln(&all, b.pttl(key) >= 0)
		}
	}
	return all.String()
}

// try asks and says how often it waited.
func (b *bench) try(a Ask) (Verdict, int) {
	b.Helper()
	batch := b.backend.Batch("test")
	v, err := b.limiter.Reserve(batch, a).Get(b.Context(), b.deferred)
	if err != nil {
		b.Fatal(err)
	}
	b.flushed()
	return v, batch.Trips()
}

func TestGroups(t *testing.T) {
	t.Parallel()
	rpm := config.Limits{RPM: rate(1)}
	key, team, user := at("o:acme", KindKey, "k", rpm), at("o:acme", KindTeam, "t", rpm), at("u:ada", "user", "ada", rpm)
	free := NewScope("tg", Owner{Kind: KindTeam, ID: "free", Home: "o:else", Bare: true})
	gpt := at("m:gpt", KindDeployment, "gpt", rpm)
	uncounted := Uncounted("mini", 1)
	for _, tt := range []struct {
		name               string
		single             bool
		scopes, candidates []*Scope
		want               []string // home, scopes, candidates
	}{
		{"one server", true, []*Scope{key, user, team}, []*Scope{gpt}, []string{"o:acme [k ada t] [gpt]"}},
		{"in order", false, []*Scope{key, user, team}, nil, []string{"o:acme [k t] []", "u:ada [ada] []"}},
		{"candidates", false, []*Scope{user, key}, []*Scope{uncounted, gpt}, []string{"u:ada [ada] []", "o:acme [k] []", "m:gpt [] [mini gpt]"}},
		{"candidates of a scope's home", false, []*Scope{key}, []*Scope{at("o:acme", KindDeployment, "own", rpm)}, []string{"o:acme [k] [own]"}},
		{"nothing kept goes along", false, []*Scope{free, user}, []*Scope{uncounted}, []string{"u:ada [free ada] [mini]"}},
		{"nothing kept at all", false, []*Scope{free}, nil, []string{"none [free] []"}},
		{"nothing", false, nil, nil, nil},
	} {
		l := New(Options{Prefix: "tg", Clustered: !tt.single})
		var got []string
		for _, g := range l.split(nil, tt.scopes, tt.candidates) {
			ids := func(list []*Scope) []string {
				out := []string{}
				for _, s := range list {
					out = append(out, s.ID)
				}
				return out
			}
			got = append(got, fmt.Sprint(g.home, " ", ids(g.scopes), " ", ids(g.candidates)))
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
	}
}

// The user's counters are at the user's own home, whichever org the request belongs to.
func TestUserOfThreeOrgsSpendsOnce(t *testing.T) {
	onClusters(t, func(b *bench) {
		user := at("u:ada", "user", "ada", config.Limits{Budgets: []config.Budget{usd(90, config.Month)}})
		var keys []*Scope
		for _, org := range []string{"a", "b", "z"} {
			keys = append(keys, at("o:"+org, KindKey, "k"+org, config.Limits{Budgets: []config.Budget{usd(1000, config.Month)}}))
		}
		for _, key := range keys {
			v, trips := b.try(Ask{Demand: b.costing(30), Scopes: []*Scope{key, user}})
			if trips != 1 {
				b.Errorf("%d trips", trips)
			}
			b.settle(granted(b, v), Ending{Nano: 30})
		}
		b.want(user.keys[0], map[string]string{"umonth.s": "90", "umonth.r": "0"})
		for _, key := range keys {
			v, trips := b.try(Ask{Demand: b.costing(1), Scopes: []*Scope{key, user}})
			if f := refusedBy(b, v, FailBudget, user); !f.Spent() || trips != 1 {
				b.Errorf("failure %+v after %d trips", f, trips)
			}
			b.want(key.keys[0], map[string]string{"umonth.s": "30", "umonth.r": "0"}) // what the key's group granted is back
			if n := len(b.members(key.keys[1])); n != 0 {
				b.Errorf("%d leases are left", n)
			}
		}
		if n := b.limiter.InFlight(); n != 0 {
			b.Errorf("%d grants are held", n)
		}
	})
}

func (b *bench) members(key string) []string {
	b.Helper()
	return b.list(pipeline.Declare(b.backend.Batch("test"), "test", pipeline.Raw, "ZRANGE", key, "0", "-1"))
}

// The least generous group decides on the tokens; each group's counters are corrected by what that group reserved.
func TestLeastOutputOfAllGroups(t *testing.T) {
	onClusters(t, func(b *bench) {
		day := []config.Budget{usd(500_000, config.Day)}
		key := at("a", KindKey, "k", config.Limits{Budgets: day, TPM: rate(10_000)})
		team := at("b", KindTeam, "t", config.Limits{TPM: rate(400)})
		gpt := at("c", KindDeployment, "gpt", config.Limits{TPM: rate(5000)})
		d := Demand{ID: "a", Input: 100, PerMNano: 1_000_000_000, Want: 1024, Least: 256, Choices: 1}
		v, _ := b.try(Ask{Demand: d, Scopes: []*Scope{key, team}, Candidates: []*Scope{gpt}})
		g := granted(b, v)
		if g.Output != 300 || g.Reserved != 300_000 || g.Chosen != 0 || g.ID != "a" {
			b.Errorf("output %d, reserved %d, candidate %d of %s", g.Output, g.Reserved, g.Chosen, g.ID)
		}
		window := func(s *Scope, requests, tokens int) {
			b.Helper()
			b.want(s.keys[strings.Index(s.has, "r")], map[string]string{"w": fmt.Sprintf("%d:%d:%d", start/5000, requests, tokens)})
		}
		window(key, 1, 600)
		window(team, 1, 400)
		window(gpt, 1, 1124)
		b.settle(g, Ending{Nano: 110_000, Usage: usage.Usage{Input: 100, Output: 10}})
		for _, s := range []*Scope{key, team, gpt} {
			window(s, 1, 110)
		}
		b.want(key.keys[0], map[string]string{"uday.s": "110000", "uday.r": "0"})
	})
}

func TestRefusalsOfAllGroups(t *testing.T) {
	onClusters(t, func(b *bench) {
		key := at("a", KindKey, "k", config.Limits{RPM: rate(0)})
		team := at("b", KindTeam, "t", config.Limits{Budgets: []config.Budget{usd(0, config.Day)}})
		open := at("c", "user", "u", config.Limits{RPM: rate(5), Parallel: rate(5)})
		full := at("m", KindDeployment, "d", config.Limits{RPM: rate(0)})
		v, trips := b.try(Ask{Demand: b.costing(1), Scopes: []*Scope{key, open, team}, Candidates: []*Scope{full}})
		refusedBy(b, v, FailBudget, team)
		if len(v.Failures) != 2 || v.Failures[1].Kind != FailRPM || v.Failures[1].Scope != key || v.Busy || trips != 1 {
			b.Errorf("verdict %+v after %d trips", v, trips)
		}
		b.want(open.keys[0], map[string]string{"w": fmt.Sprintf("%d:0:0", start/5000)})
		if v, trips = b.try(Ask{Demand: b.costing(1), Scopes: []*Scope{open}, Candidates: []*Scope{full}}); !v.Busy || v.Failures[0].Scope != full || trips != 1 {
			b.Errorf("verdict %+v after %d trips", v, trips)
		}
		b.want(open.keys[0], map[string]string{"w": fmt.Sprintf("%d:0:0", start/5000)})
		if n := len(b.members(open.keys[1])); n != 0 {
			b.Errorf("%d leases are left", n)
		}
	})
}

// One more wait a group, never more, for a request that others' reservations or slots refuse; none where it cannot help.
func TestContendedGroupsAreAskedAgain(t *testing.T) {
	onClusters(t, func(b *bench) {
		slot := config.Limits{Parallel: rate(1)}
		first, last := at("a", KindTeam, "t", slot), at("b", "user", "u", slot)
		for _, tt := range []struct {
			name  string
			taken *Scope
			trips int
		}{{"the first refuses", first, 2}, {"the last refuses", last, 3}} {
			holder, _ := b.try(Ask{Demand: b.costing(1), Scopes: []*Scope{tt.taken}})
			v, trips := b.try(Ask{Demand: b.costing(1), Scopes: []*Scope{last, first}})
			refusedBy(b, v, FailParallel, tt.taken)
			if trips != tt.trips || len(v.Failures) != 1 {
				b.Errorf("%s: %d trips, want %d; %+v", tt.name, trips, tt.trips, v.Failures)
			}
			b.settle(granted(b, holder), Ending{})
			for _, s := range []*Scope{first, last} {
				if left := b.members(s.keys[0]); len(left) != 0 {
					b.Errorf("%s: %s keeps %v", tt.name, s.Kind, left)
				}
			}
		}
	})
}

// What is free when a group is asked again is taken then, under a lease id of its own; all else names the request.
func TestSecondTryGetsWhatHasBecomeFree(t *testing.T) {
	onClusters(t, func(b *bench) {
		limits := config.Limits{Budgets: []config.Budget{usd(10, config.Day)}, RPM: rate(9)}
		scopes := []*Scope{at("c", KindKey, "k", limits), at("b", KindTeam, "t", limits), at("a", "user", "u", limits)}
		other := granted(b, b.reserve(b.costing(10), scopes[1]))
		a := b.limiter.Reserve(b.backend.Batch("test"), Ask{Demand: b.costing(10), Scopes: scopes})
		for i := range a.groups {
			a.receive(b.Context(), &a.groups[i])
		}
		if !a.contended() {
			b.Fatal("the groups do not disagree")
		}
		b.settle(other, Ending{})
		v, err := a.Get(b.Context(), b.deferred)
		if err != nil {
			b.Fatal(err)
		}
		g := granted(b, v)
		b.flushed()
		if n := a.batch.Trips(); n != 3 || g.ID != "req-2" || g.Reserved != 10 || len(g.portions) != 3 {
			b.Errorf("%d trips, grant %+v", n, g)
		}
		for _, c := range []struct {
			scope *Scope
			lease string
		}{{scopes[2], "req-2||uday:"}, {scopes[1], "req-2~2||uday:"}, {scopes[0], "req-2~2|k|uday:"}} {
			left := b.members(c.scope.keys[2])
			if len(left) != 1 || !strings.HasPrefix(left[0], c.lease) {
				b.Errorf("leases of %s: %q, want one of %s", c.scope.Kind, left, c.lease)
			}
			b.want(c.scope.keys[0], map[string]string{"uday.r": "10"})
		}
		b.ms += 31_000
		v = b.reserve(b.costing(10), scopes...)
		granted(b, v)
		if d := cmp.Diff([]Lost{{ID: "req-2", Note: "k", Nano: 10}}, v.Lost); d != "" {
			b.Error(d)
		}
	})
}

// A group that does not answer leaves nothing of the others' grants, and its error is the admission's.
func TestErrorOfOneGroupReleasesTheOthers(t *testing.T) {
	onClusters(t, func(b *bench) {
		limits := config.Limits{Budgets: []config.Budget{usd(10, config.Day)}, RPM: rate(9)}
		key, team := at("a", KindKey, "k", limits), at("b", KindTeam, "t", limits)
		dead := granted(b, b.reserve(b.costing(10), key)) // its lease runs out, and is found
		b.ms += 31_000
		a := b.limiter.Reserve(b.backend.Batch("test"), Ask{Demand: b.costing(5), Scopes: []*Scope{key, team}})
		a.groups[1].reply = pipeline.Declare(a.batch, "test", pipeline.Raw, "HGET", key.keys[2], "x") // leases are no hash
		v, err := a.Get(b.Context(), b.deferred)
		if err == nil || v.Grant != nil || len(v.Failures) > 0 {
			b.Fatalf("verdict %+v, error %v", v, err)
		}
		if len(v.Lost) != 1 || v.Lost[0].ID != dead.ID {
			b.Errorf("lost = %+v", v.Lost)
		}
		b.flushed()
		b.want(key.keys[0], map[string]string{"uday.s": "0", "uday.r": "0"})
		if left := b.members(key.keys[2]); len(left) != 0 {
			b.Errorf("leases left: %v", left)
		}
		if n := b.limiter.InFlight(); n != 1 { // the dead one, which this process still thinks it holds
			b.Errorf("%d grants are held", n)
		}
	})
}

// The record's stream has a slot of its own, and no group's settlement names it: it gets the record once.
func TestRecordIsAppendedOnce(t *testing.T) {
	onBoth(t, func(b *bench) {
		limits := config.Limits{Budgets: []config.Budget{usd(1000, config.Day)}}
		scopes := []*Scope{b.scope(KindKey, "k", limits), b.scope(KindTeam, "t", limits)}
		d := b.costing(10)
		b.settle(granted(b, b.reserve(d, scopes...)), Ending{Nano: 7, Record: []byte("the record")})
		unleased := b.costing(0)
		b.settle(b.limiter.Unleased(unleased, nil), Ending{Record: []byte("another")})
		b.settle(b.limiter.Unleased(b.costing(3), scopes), Ending{Nano: 3})
		var records []string
		for i := range streams {
			n := fmt.Sprint(i)
			stream := pipeline.Declare(b.backend.Batch("test"), "test", pipeline.Raw, "XRANGE", "tg:spend:{"+n+"}", "-", "+")
			v, err := stream.Get(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			for j := range (reader{v}).len() {
				records = append(records, n+" "+reader{v}.list(j).list(1).list(1).str())
			}
		}
		want := []string{shard(d.ID) + " the record", shard(unleased.ID) + " another"}
		slices.Sort(want)
		slices.Sort(records)
		if diff := cmp.Diff(want, records); diff != "" {
			b.Error(diff)
		}
		b.want(scopes[1].keys[0], map[string]string{"uday.s": "10", "uday.r": "0"})
	})
}

// The reply to one group's settlement is lost: it has run, and is repeated; the others are answered. Each has its
// number, and charges once.
func TestLostReplyOfOneGroupsSettlement(t *testing.T) {
	t.Parallel()
	for cut := range 3 {
		t.Run(fmt.Sprint("group ", cut), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			b := newBench(t, open(t, "redis://"+proxy.Addr()+"/0"), true)
			limits := config.Limits{Budgets: []config.Budget{usd(100, config.Day)}, TPM: rate(100)}
			scopes := []*Scope{at("a", KindKey, "k", limits), at("b", KindTeam, "t", limits), at("c", "user", "u", limits)}
			g := granted(b, b.reserve(b.costing(10), scopes...))
			proxy.Reset()
			proxy.CutAfter(func(cmd []string) bool {
				return len(cmd) > 3 && strings.Contains(cmd[3], "{"+scopes[cut].Home+"}:w:")
			})
			b.settle(g, Ending{Nano: 7, Usage: usage.Usage{Output: 4}, Record: []byte("r")})
			for _, s := range scopes {
				b.want(s.keys[0], map[string]string{"uday.s": "7", "uday.r": "0"})
				b.want(s.keys[1], map[string]string{"w": fmt.Sprintf("%d:1:4", start/5000)})
			}
			if n := server.Client().XLen(t.Context(), "tg:spend:{"+shard(g.ID)+"}").Val(); n != 1 {
				t.Errorf("%d records", n)
			}
			var sent []string
			for _, trip := range proxy.Trips() {
				for _, cmd := range trip.Commands {
					if len(cmd) > 3 && strings.Contains(cmd[3], ":w:") {
						sent = append(sent, strings.SplitAfter(cmd[3], "}")[0])
					}
				}
			}
			again := fmt.Sprintf("tg:{%s}", scopes[cut].Home)
			if n := len(slices.DeleteFunc(slices.Clone(sent), func(s string) bool { return s != again })); n != 2 {
				t.Errorf("%s was sent %d times: %v", again, n, sent)
			}
		})
	}
}

func TestRenewalOfAllGroups(t *testing.T) {
	onClusters(t, func(b *bench) {
		limits := config.Limits{Budgets: []config.Budget{usd(10, config.Day)}, Parallel: rate(1)}
		scopes := []*Scope{at("a", KindKey, "k", limits), at("b", KindTeam, "t", limits), at("c", "user", "u", config.Limits{RPM: rate(9)})}
		g := granted(b, b.reserve(b.costing(10), scopes...))
		for range 4 {
			b.ms += 20_000
			b.limiter.Renew(b.deferred, false)
			b.flushed()
		}
		for _, s := range scopes[:2] {
			refusedBy(b, b.reserve(b.costing(1), s), FailBudget, s)
		}
		b.settle(g, Ending{Nano: 4})
		for _, s := range scopes[:2] {
			b.want(s.keys[0], map[string]string{"uday.s": "4", "uday.r": "0"})
		}
	})
}
