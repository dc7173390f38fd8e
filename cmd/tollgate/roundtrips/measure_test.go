package roundtrips

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// The contract of design.md: these numbers may never grow.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	r := Redis{Addr: redistest.Start(t).Addr()}
	for _, n := range redistest.StartCluster(t, redistest.Proxied).Nodes {
		r.Cluster = append(r.Cluster, n.Proxy)
	}
	got, err := Measure(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got {
		t.Logf("%-12s %-36s waits for %d before, %d after; %d written after", s.Store, s.Name, s.Before, s.WaitedAfter, s.WrittenAfter)
		for i, trip := range s.Trips {
			t.Logf("    trip %d: %v", i+1, trip)
		}
	}
	every := []Shape{
		{Name: "chat", Before: 1, WrittenAfter: 1, LiteLLM: "22 -> 8 (12+10 -> 5+3)"},
		{Name: "chat, streaming", Before: 1, WrittenAfter: 1},
		{Name: "chat, shuffle routing", Before: 1, WrittenAfter: 1},
		{Name: "chat, shuffle routing, streaming", Before: 1, WrittenAfter: 1},
		{Name: "chat, cache hit", Before: 1, WrittenAfter: 1},
		{Name: "chat, cache hit, streaming", Before: 1, WrittenAfter: 1},
		{Name: "refused by a limit", Before: 1},
		{Name: "refused by a limit known to memory"},
		{Name: "refused: unknown key"},
		{Name: "chat, identities expired", Before: 1, WrittenAfter: 1, LiteLLM: "46 -> 16"},
		{Name: "chat, identities changed", Before: 2, WrittenAfter: 1},
		{Name: "chat, key unknown to memory", Before: 2, WrittenAfter: 1},
		{Name: "chat, scripts lost", Before: 2, WrittenAfter: 2},
	}
	on := func(store string, list ...Shape) (out []Shape) {
		for _, s := range list {
			s.Store = store
			if store != "standalone" {
				s.LiteLLM = "" // its figures are of one server
			}
			if store == "cluster" && (s.Name == "refused by a limit" || s.Name == "chat, identities changed") {
				s.WrittenAfter++ // what the model's group had granted is given back
			}
			out = append(out, s)
		}
		return out
	}
	want := slices.Concat(on("standalone", every...), on("counters, cache apart", every[0], every[4]), on("cluster", every...))
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Shape{}, "Trips")); d != "" {
		t.Error(d)
	}
}
