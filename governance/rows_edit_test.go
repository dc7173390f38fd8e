package governance

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/limit"
)

// warm lets every replica know the key, with all its rows fresh.
func (rig *rowsRig) warm() {
	rig.Helper()
	for _, r := range rig.replicas {
		r.passes("cold", 2)
		r.settled()
		r.passes("warm", 1)
		r.settled()
	}
}

// expire makes all that a replica knows of the key stale, as 60 s would.
func (r *replica) expire() {
	r.Helper()
	for _, e := range r.entries() {
		r.gate.rows.Outdated(e)
	}
}

func (r *replica) entries() []*identity.Entry {
	r.Helper()
	entry := r.gate.rows.Key(sum32(rowSecret))
	return r.gate.policy.Load().fromRows(r.gate.rows, entry).rows.joined.Entries
}

// TestExpiredRowsCostNoWait: all rows of a request are read again on the pipeline that it needs anyway.
func TestExpiredRowsCostNoWait(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	rig.create(acme())
	rig.warm()
	r := rig.replicas[0]
	r.expire()
	r.proxy.Reset()
	o := r.ask(rowSecret)
	if o.status != 0 || o.waits != 1 {
		t.Errorf("status %d after %d waits, want to pass after 1", o.status, o.waits)
	}
	trips := r.proxy.Trips()
	if len(trips) != 1 {
		t.Fatalf("%d trips before the upstream is called, want 1: %v", len(trips), trips)
	}
	var gets []string
	for _, cmd := range trips[0].Commands {
		if strings.EqualFold(cmd[0], "get") {
			gets = append(gets, cmd[1])
		}
	}
	want := []string{
		"tg:i:key:" + sumOf(rowSecret), "tg:i:team:search", "tg:i:project:rag", "tg:i:user:ada",
		"tg:i:member:" + limit.Safe("search/ada"), "tg:i:org:acme",
	}
	if diff := cmp.Diff(want, gets); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	o.end()
	r.settled()
	r.passes("all is fresh again", 1)
}

// TestGrantFromOldCopy: the script knows nothing of an edit (its write of the revision was lost, or is under way), so it
// grants; the copy that came beside it differs, and the grant is taken back before anything is built on it.
func TestGrantFromOldCopy(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	x := acme()
	x.team.Limits = usdBudget(100)
	x.team.Limits.RPM = &config.Rate{Limit: 1000}
	rig.create(x)
	rig.warm()
	r := rig.replicas[0]
	x.team.Limits = usdBudget(50)
	x.team.Limits.RPM = &config.Rate{Limit: 999}
	rig.silently(x.parts(2)[0])
	if err := rig.server.Client().HDel(t.Context(), limit.RevisionKey("tg", orgHome, "team", "search"), limit.RevisionField).Err(); err != nil {
		t.Fatal(err)
	}
	r.expire()
	records := rig.records()
	o := r.ask(rowSecret)
	if o.status != 0 || o.waits != 2 {
		t.Fatalf("status %d after %d waits, want to pass after 2", o.status, o.waits)
	}
	r.settled()
	if got := r.budget(o); got != 50_000_000_000 {
		t.Errorf("decided by a budget of %d, want the new one", got)
	}
	if got, want := rig.field("tg:{o:acme}:b:team:search", "ulifetime.r"), o.call.grant.Reserved; got != want || want < requestCost {
		t.Errorf("%d reserved after the first grant was taken back, want %d", got, want)
	}
	if n := rig.server.Client().ZCard(t.Context(), "tg:{o:acme}:l:team:search").Val(); n != 1 {
		t.Errorf("%d leases, want 1", n)
	}
	if n := rig.records(); n != records {
		t.Errorf("%d records of a grant that was taken back", n-records)
	}
	o.end()
	r.settled()
	if got := rig.field("tg:{o:acme}:b:team:search", "ulifetime.r"); got != 0 {
		t.Errorf("%d still reserved at the end", got)
	}
	if n := rig.records(); n != records+1 {
		t.Errorf("%d records of one request", n-records)
	}
}

// records is how many spend records there are.
func (rig *rowsRig) records() int64 {
	rig.Helper()
	var n int64
	c := rig.server.Client()
	for _, key := range c.Keys(rig.Context(), "tg:spend:*").Val() {
		n += c.XLen(rig.Context(), key).Val()
	}
	return n
}

func (rig *rowsRig) field(key, field string) int64 {
	rig.Helper()
	n, err := rig.server.Client().HGet(rig.Context(), key, field).Int64()
	if err != nil {
		rig.Fatalf("%s %s: %v", key, field, err)
	}
	return n
}

// budget is the amount of the only budget that a request was decided by.
func (r *replica) budget(o outcome) int64 {
	r.Helper()
	for _, u := range o.call.grant.Uses {
		for _, b := range u.Budgets {
			return b.Budget.Amount
		}
	}
	r.Fatal("no budget")
	return 0
}

// TestRefusalFromOldCopyIsNotFinal: whatever memory knows, a fresh look decides.
func TestRefusalFromOldCopyIsNotFinal(t *testing.T) {
	t.Parallel()
	limited := func(n int64) config.Limits {
		return config.Limits{Budgets: []config.Budget{{Unit: config.Requests, Amount: n, Per: config.Lifetime}}}
	}
	for _, tt := range []struct {
		name    string
		refuses func(*tenant)
		reason  string
		waits   int // to see that it passes now
	}{
		{"blocked key", func(x *tenant) { x.key.Blocked = true }, "blocked", 2},
		{"blocked team", func(x *tenant) { x.team.Blocked = true }, "blocked", 2},
		{"expired key", func(x *tenant) { x.key.Expires = time.Unix(1, 0).UTC() }, "expired", 2},
		{"model not allowed", func(x *tenant) { x.org.Models = []string{"!m"} }, "model_not_allowed", 2},
		{"a request too large", func(x *tenant) { one := int64(1); x.user.Limits.MaxRequest = &config.MaxRequest{OutputTokens: &one} }, "max_request", 2},
		{"a limit of the member", func(x *tenant) { x.member.Limits = limited(0) }, "budget", 2},
		{"a limit of the project", func(x *tenant) { x.project.Limits.Parallel = &config.Rate{Limit: 0} }, "parallel", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rig := newRowsRig(t, 1, nil, nil)
			bad, good := acme(), acme()
			tt.refuses(&bad)
			rig.put(append(bad.parts(1), bad.keyRow(1))...)
			r := rig.replicas[0]
			r.refusedAs("cold", tt.reason)
			r.refusedAs("warm", tt.reason)
			for _, row := range append(good.parts(2), good.keyRow(2)) {
				rig.silently(row)
			}
			r.expire()
			r.passes("from the fresh copies", tt.waits)
		})
	}
}

// refusedAs sends a request that must be refused for a reason.
func (r *replica) refusedAs(what, reason string) {
	r.Helper()
	o := r.ask(rowSecret)
	if o.status == 0 || o.reason != "tollgate_"+reason {
		r.Errorf("%s: status %d %s, want a refusal for %s: %s", what, o.status, o.reason, reason, o.body)
	}
	o.end()
}

// TestBlockedEverywhereAtOnce: an edit is in force at the next admission of every replica, whether its message has
// arrived or not.
func TestBlockedEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		edit   func(*tenant) func(x tenant) *identity.Row
		status int
		reason string
	}{
		{"key blocked", func(x *tenant) func(tenant) *identity.Row {
			x.key.Blocked = true
			return func(x tenant) *identity.Row { return x.keyRow(2) }
		}, 401, "blocked"},
		{"key deleted", func(*tenant) func(tenant) *identity.Row {
			return func(x tenant) *identity.Row {
				row := x.keyRow(2)
				return &identity.Row{Kind: row.Kind, ID: row.ID, Revision: 2, Deleted: true, Home: row.Home, Secret: row.Secret}
			}
		}, 401, "unknown_key"},
		{"team deleted", func(*tenant) func(tenant) *identity.Row {
			return func(tenant) *identity.Row {
				return &identity.Row{Kind: identity.KindTeam, ID: "search", Revision: 2, Deleted: true, Home: orgHome}
			}
		}, 401, "blocked"},
		{"org without the model", func(x *tenant) func(tenant) *identity.Row {
			x.org.Models = []string{"other"}
			return func(x tenant) *identity.Row { return x.parts(2)[1] }
		}, 403, "model_not_allowed"},
		{"a limit for the user", func(x *tenant) func(tenant) *identity.Row {
			x.user.Limits.RPM = &config.Rate{Limit: 0}
			return func(x tenant) *identity.Row { return x.parts(2)[2] }
		}, 429, "rpm"},
	} {
		for _, told := range []bool{true, false} {
			name := tt.name + ", told"
			if !told {
				name = tt.name + ", not told"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rig := newRowsRig(t, 2, nil, nil)
				x := acme()
				rig.create(x)
				rig.warm()
				row := tt.edit(&x)(x)
				if told {
					rig.put(row)
				} else {
					rig.silently(row)
				}
				for _, r := range rig.replicas {
					o := r.ask(rowSecret)
					if o.status != tt.status || o.reason != "tollgate_"+tt.reason {
						t.Errorf("status %d %s, want %d %s: %s", o.status, o.reason, tt.status, tt.reason, o.body)
					}
					o.end()
					r.settled()
				}
			})
		}
	}
}

// TestLoweredBudgetIsExact: requests on two replicas at once, after an edit of the team's budget, admit exactly what the
// new one holds.
func TestLoweredBudgetIsExact(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 2, nil, nil)
	x := acme()
	budget := func(n int64) config.Limits {
		return config.Limits{Budgets: []config.Budget{{Unit: config.Requests, Amount: n, Per: config.Lifetime}}}
	}
	x.team.Limits = budget(1000)
	rig.create(x)
	rig.warm() // two requests a replica: charged, for each was admitted
	x.team.Limits = budget(11)
	rig.put(x.parts(2)[0])
	var passed atomic.Int64
	var calls sync.WaitGroup
	outcomes := make(chan outcome, 60)
	for i := range 60 {
		calls.Go(func() {
			o := rig.replicas[i%2].ask(rowSecret)
			switch {
			case o.status == 0:
				passed.Add(1)
			case o.reason != "tollgate_budget":
				t.Errorf("status %d %s: %s", o.status, o.reason, o.body)
			}
			outcomes <- o
		})
	}
	calls.Wait()
	close(outcomes)
	if n := passed.Load(); n != 7 {
		t.Errorf("%d requests passed, want the 7 that the budget of 11 still holds", n)
	}
	for o := range outcomes {
		o.end()
	}
}

// TestRevisionWithoutCopy: a revision whose copy never comes is an error of the store, and charges nothing.
func TestRevisionWithoutCopy(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	x := acme()
	x.key.Limits = usdBudget(100)
	rig.create(x)
	rig.warm()
	if err := rig.server.Client().HSet(t.Context(), limit.RevisionKey("tg", orgHome, "key", "k"), limit.RevisionField, 9).Err(); err != nil {
		t.Fatal(err)
	}
	r := rig.replicas[0]
	o := r.ask(rowSecret)
	// Three decisions, and the key read again after the first two.
	if o.status != 503 || o.reason != "tollgate_store_unreachable" || o.waits != 5 {
		t.Errorf("status %d %s after %d waits, want 503 after 5", o.status, o.reason, o.waits)
	}
	r.settled()
	if n := rig.field("tg:{o:acme}:b:key:k", "ulifetime.r"); n != 0 {
		t.Errorf("%d reserved", n)
	}
}

// TestUnreadableCopy: a copy that cannot be read is no copy, but no reason to believe the old one either.
func TestUnreadableCopy(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	x := acme()
	x.key.Limits = usdBudget(100)
	rig.create(x)
	rig.warm()
	if err := rig.server.Client().Set(t.Context(), "tg:i:team:search", `{"revision":2,"kind":"team"}`, 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := rig.replicas[0]
	r.expire()
	r.refused("with an unreadable team", 503, "store_unreachable", 1)
	r.settled()
	if n := rig.field("tg:{o:acme}:b:key:k", "ulifetime.r"); n != 0 {
		t.Errorf("%d reserved", n)
	}
}

// TestEditOfWhatCountsNothing: the message, and only it, covers requests that ask for no admission.
func TestEditOfWhatCountsNothing(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 2, nil, nil)
	x := acme()
	rig.create(x)
	models := func(r *replica) outcome { return r.request("GET", "/v1/models", rowSecret, "") }
	for _, r := range rig.replicas {
		if o := models(r); o.status != 200 || !strings.Contains(o.body, `"id":"m"`) {
			t.Fatalf("cold: status %d %s", o.status, o.body)
		}
		if o := models(r); o.status != 200 || o.waits != 0 {
			t.Fatalf("warm: status %d after %d waits", o.status, o.waits)
		}
	}
	x.team.Blocked = true
	rig.put(x.parts(2)[0])
	for _, r := range rig.replicas {
		r.until("the team is blocked", func() bool { return models(r).status == 401 })
	}
}

// TestLostChannel: edits whose message was missed are seen once the channel is back, and while it is away.
func TestLostChannel(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	x := acme()
	rig.create(x)
	rig.warm()
	r := rig.replicas[0]
	models := func() int { return r.request("GET", "/v1/models", rowSecret, "").status }
	r.proxy.Stall(true)
	r.until("two pings are missed", r.gate.rows.Deaf)
	x.key.Blocked = true
	rig.silently(x.keyRow(2))
	r.proxy.Stall(false)
	r.until("the block is seen", func() bool { return models() == 401 })
	r.until("the channel is back", func() bool { return !r.gate.rows.Deaf() })
	if s := models(); s != 401 {
		t.Errorf("status %d once the channel is back", s)
	}
	x.key.Blocked = false
	if err := rig.server.Client().ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	rig.silently(x.keyRow(3))
	r.until("all is read again", func() bool { return models() == 200 })
}

// TestEditsUnderLoad: requests and edits at the same time; at the end all books are even.
func TestEditsUnderLoad(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 2, nil, nil)
	x := acme()
	x.team.Limits, x.key.Limits = usdBudget(1000), usdBudget(1000)
	rig.create(x)
	var calls sync.WaitGroup
	stop := make(chan struct{})
	for i := range 8 {
		r := rig.replicas[i%2]
		calls.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				o := r.ask(rowSecret)
				// 503: edited more often than a request is decided again.
				if o.status != 0 && o.status != 401 && o.status != 503 {
					t.Errorf("status %d: %s", o.status, o.body)
				}
				o.end()
			}
		})
	}
	for n := int64(2); n < 60; n++ {
		x := x
		x.team.Limits = usdBudget(1000 + n)
		x.key.Blocked = n%2 == 0
		rig.put(x.parts(n)[n%5], x.keyRow(n))
	}
	close(stop)
	calls.Wait()
	for _, r := range rig.replicas {
		r.settled()
		r.until("the last edit is in force", func() bool { // a block is refused from memory until the message comes
			o := r.ask(rowSecret)
			o.end()
			return o.status == 0
		})
		r.settled()
	}
	for _, scope := range []string{"team:search", "key:k"} {
		if n := rig.field("tg:{o:acme}:b:"+scope, "ulifetime.r"); n != 0 {
			t.Errorf("%s: %d still reserved", scope, n)
		}
		if n := rig.server.Client().ZCard(t.Context(), "tg:{o:acme}:l:"+scope).Val(); n != 0 {
			t.Errorf("%s: %d leases left", scope, n)
		}
	}
}
