package roundtrips

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// The contract of design.md: these numbers may never grow.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	got, err := Measure(t.Context(), redistest.Start(t).Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got {
		t.Logf("%-36s waits for %d before, %d after; %d written after", s.Name, s.Before, s.WaitedAfter, s.WrittenAfter)
		for i, trip := range s.Trips {
			t.Logf("    trip %d: %v", i+1, trip)
		}
	}
	want := []Shape{
		{Name: "chat", Before: 1, WrittenAfter: 1, LiteLLM: "22 -> 8 (12+10 -> 5+3)"},
		{Name: "chat, streaming", Before: 1, WrittenAfter: 1},
		{Name: "chat, shuffle routing", Before: 1, WrittenAfter: 1},
		{Name: "chat, shuffle routing, streaming", Before: 1, WrittenAfter: 1},
		{Name: "chat, cache hit", Before: 1, WrittenAfter: 1},
		{Name: "chat, cache hit, streaming", Before: 1, WrittenAfter: 1},
		{Name: "refused by a limit", Before: 1},
		{Name: "refused by a limit known to memory"},
		{Name: "refused: unknown key"},
	}
	for i := range want {
		want[i].Store = "standalone"
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Shape{}, "Trips")); d != "" {
		t.Error(d)
	}
}
