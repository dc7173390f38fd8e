package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

func TestRecordComesBackAsItWas(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 23, 59, 59, 123_000_000, time.UTC)
	r := Record{
		ID: "0193f3c2-b7a6-7d8e-9a10-b2c3d4e5f601", AdmittedAt: at, EndedAt: at.Add(time.Second), Key: "k", Team: "t", Org: "o",
		User: "u", EndUser: "e", Tags: []string{"a", "b"}, Endpoint: "chat", Stream: true, ModelAsked: "fast", Model: "m",
		Deployment: "d", Provider: "openai", Upstream: "m-1", Outcome: Partial, Status: 200, Estimated: true, WouldFail: "key/k rpm",
		Price: "openai/m", ListNano: 1<<53 - 1, CostNano: 12, Reserved: 34, DurationMs: 5, FirstByteMs: 2,
	}
	r.SetUsage(usage.Usage{Input: 1, CacheRead: 2, CacheWrite: 3, CacheWrite1h: 4, CacheWrite12h: 5, Output: 6, Reasoning: 7})
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, got); d != "" {
		t.Error(d)
	}
	if _, err := Decode([]byte(`{"id":1}`)); err == nil {
		t.Error("a record of another shape is read")
	}
}

// What a record does not have takes no place in the stream.
func TestRecordIsShort(t *testing.T) {
	t.Parallel()
	b, err := (&Record{ID: "x", Key: "k", Outcome: Lost}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"team", "tags", "cache_read_tokens", "reserved_nano", "status", "estimated"} {
		if strings.Contains(string(b), `"`+name+`"`) {
			t.Errorf("%s stands in %s", name, b)
		}
	}
}

func TestEndUser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ setting, id, want string }{
		{"plain", "ada", "ada"}, {"drop", "ada", ""}, {"hash", "", ""},
	} {
		if got := EndUser(tt.setting, tt.id); got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.setting, tt.id, got, tt.want)
		}
	}
	hash := EndUser("hash", "ada")
	if len(hash) != 32 || hash != EndUser("hash", "ada") || hash == EndUser("hash", "adb") {
		t.Errorf("hash of ada is %q", hash)
	}
}

func TestTotals(t *testing.T) {
	t.Parallel()
	var totals Totals
	totals.Add(&Record{Input: 1, Output: 2, CostNano: 3, Outcome: Complete})
	totals.Add(&Record{Outcome: CacheHit})
	if got, want := totals.Sum(), (Sum{Requests: 2, CacheHits: 1, InputTokens: 1, OutputTokens: 2, Nano: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
