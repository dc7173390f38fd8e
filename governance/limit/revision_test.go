package limit

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// revised makes a scope of a row's revision.
func revised(home, kind, id string, revision int64, l config.Limits) *Scope {
	return NewScope("tg", Owner{Kind: kind, ID: id, Home: home, Limits: l, Zone: time.UTC, Revision: revision})
}

// edit writes a row's revision as an edit does.
func (b *bench) edit(s *Scope, revision int64) {
	b.Helper()
	set := pipeline.Declare(b.backend.Batch("test"), "test", pipeline.Raw, "HSET",
		RevisionKey("tg", s.Home, s.Kind, s.ID), RevisionField, strconv.FormatInt(revision, 10))
	if _, err := set.Get(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func wantStale(t testing.TB, v Verdict, trips int, want ...*Scope) {
	t.Helper()
	if v.Grant != nil || len(v.Failures) > 0 || v.Busy || trips != 1 || !slices.Equal(v.Stale, want) {
		t.Errorf("verdict %+v after %d trips, want %d stale", v, trips, len(want))
	}
}

// Not even leases that have run out are dropped, nor is a period rotated.
func TestStaleChangesNothing(t *testing.T) {
	onBoth(t, func(b *bench) {
		limits := config.Limits{Budgets: []config.Budget{usd(100, config.Minute)}, RPM: rate(9), Parallel: rate(9)}
		key, team := revised("h", KindKey, "k", 7, limits), revised("h", KindTeam, "t", 1<<62, limits)
		user := revised("h", "user", "u", 9, config.Limits{}) // nothing of it is counted, yet it can be blocked
		scopes := []*Scope{key, team, user}
		b.settle(granted(b, b.reserve(b.costing(10), scopes...)), Ending{Nano: 10})
		granted(b, b.reserve(b.costing(10), scopes...))
		b.ms += 70_000
		for _, c := range []struct {
			edited   *Scope
			revision int64
			stale    []*Scope
		}{
			{user, 10, []*Scope{user}},
			{team, 1<<62 + 1, []*Scope{team, user}}, // beyond what Lua's numbers hold exactly
			{key, 8, scopes},
		} {
			b.edit(c.edited, c.revision)
			before := b.state(scopes...)
			v, trips := b.try(Ask{Demand: b.costing(10), Scopes: scopes})
			wantStale(b, v, trips, c.stale...)
			if after := b.state(scopes...); after != before {
				b.Errorf("a stale admission changed\n%s\nto\n%s", before, after)
			}
		}
	})
}

func TestStaleGroupReleasesTheOthers(t *testing.T) {
	onClusters(t, func(b *bench) {
		limits := config.Limits{Budgets: []config.Budget{usd(100, config.Day)}, RPM: rate(9)}
		key, user := at("a", KindKey, "k", limits), revised("b", "user", "u", 1, limits)
		full := at("c", KindTeam, "t", config.Limits{RPM: rate(0)})
		b.edit(user, 2)
		before := b.state(user)
		for _, scopes := range [][]*Scope{{key, user}, {user, full, key}} { // stale says more than a limit
			v, trips := b.try(Ask{Demand: b.costing(10), Scopes: scopes})
			wantStale(b, v, trips, user)
			if after := b.state(user); after != before {
				b.Errorf("a stale admission changed\n%s\nto\n%s", before, after)
			}
			b.want(key.keys[0], map[string]string{"uday.s": "0", "uday.r": "0"})
			b.want(key.keys[1], map[string]string{"w": fmt.Sprintf("%d:0:0", start/5000)})
			if left := b.members(key.keys[2]); len(left) != 0 {
				b.Errorf("leases left: %v", left)
			}
		}
		// An identity that was revoked is stale also where another group does not answer.
		a := b.limiter.Reserve(b.backend.Batch("test"), Ask{Demand: b.costing(10), Scopes: []*Scope{key, user}})
		a.groups[0].reply = pipeline.Declare(a.batch, "test", pipeline.Raw, "HGET", "tg:nothing", "x") // nil is an error here
		v, err := a.Get(b.Context(), b.deferred)
		if err != nil || !slices.Equal(v.Stale, []*Scope{user}) {
			b.Errorf("verdict %+v, error %v", v, err)
		}
	})
}

// A revision that is not newer grants and stays as it is; only an edit writes it. The hash that an edit made counts as
// missing: it gets its birth and its TTL from the first admission.
func TestEditedHashIsLikeAMissingOne(t *testing.T) {
	onBoth(t, func(b *bench) {
		const days35 = int64(35 * 24 * time.Hour / time.Millisecond)
		for _, c := range []struct {
			id       string
			stored   int64 // 0: none
			budgets  []config.Budget
			min, max int64 // TTL
		}{
			{"none", 0, []config.Budget{usd(100, config.Minute)}, days35 + 60_000, days35 + 120_000},
			{"older", 4, []config.Budget{usd(100, config.Minute)}, days35 + 60_000, days35 + 120_000},
			{"same", 5, []config.Budget{usd(100, config.Minute), usd(900, config.Hour)}, days35 + 3_600_000, days35 + 7_200_000},
			{"lifetime", 5, []config.Budget{usd(100, config.Minute), usd(900, config.Lifetime)}, -1, -1},
			{"no budget", 5, nil, -1, -1},
		} {
			s := revised(b.home(KindKey), KindKey, c.id, 5, config.Limits{Budgets: c.budgets})
			rev := ""
			if c.stored > 0 {
				b.edit(s, c.stored)
				rev = strconv.FormatInt(c.stored, 10)
			}
			// A settlement of an admission that this hash does not know must not make it, nor be charged.
			b.settle(b.limiter.Unleased(b.costing(50), []*Scope{s}), Ending{Nano: 50})
			b.ms += 10
			g := granted(b, b.reserve(b.costing(10), s))
			want := map[string]string{"rev": rev, "since": ""}
			if len(c.budgets) > 0 {
				want = map[string]string{"rev": rev, "since": strconv.FormatInt(b.ms, 10), "uminute.s": "0", "uminute.r": "10"}
			}
			b.want(s.keys[0], want)
			if ms := b.pttl(s.keys[0]); ms < c.min-5000 || ms > c.max {
				b.Errorf("%s: lives for %d ms, want %d to %d", c.id, ms, c.min, c.max)
			}
			b.settle(g, Ending{Nano: 7})
			if len(c.budgets) > 0 {
				b.want(s.keys[0], map[string]string{"rev": rev, "uminute.s": "7", "uminute.r": "0"})
			}
		}
	})
}
