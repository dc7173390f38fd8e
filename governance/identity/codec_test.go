package identity

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// full are rows that use every field of the configuration's types.
func full(t testing.TB) []*Row {
	t.Helper()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	n := func(v int64) *int64 { return &v }
	until := time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC)
	limits := config.Limits{
		Budgets: []config.Budget{
			{Unit: config.USD, Amount: 1<<53 - 1, Per: config.Month, Enforce: config.Audit, Alert: []int{80, 100},
				Raises: []config.Raise{{Amount: 12_500_000_001, Until: until, Note: "launch"}}},
			{Unit: config.USD, Amount: 5, Per: config.Month, Soft: true},
			{Unit: config.Tokens, Amount: 0, Per: config.Days30},
		},
		RPM: &config.Rate{Limit: 0}, TPM: &config.Rate{Limit: 9, Enforce: config.Off}, TPMCounts: config.CountUncached,
		Parallel: &config.Rate{Limit: 3}, MaxRequest: &config.MaxRequest{USD: n(1), InputTokens: n(2), OutputTokens: n(0)},
		PerModel: map[string]config.Limits{"m*": {RPM: &config.Rate{Limit: 1}}, "a": {Budgets: []config.Budget{{Unit: config.Requests, Amount: 7, Per: config.Lifetime}}}},
	}
	scope := config.Scope{Limits: limits, Enforce: config.Block, Timezone: berlin}
	access := config.Access{
		Models: []string{"*", "!o1"}, Aliases: map[string]string{"fast": "gpt", "b": "c"}, Endpoints: []string{"chat"}, Regions: []string{"eu"},
	}
	sum := hashed("full")
	rows := []*Row{
		{Kind: KindTeam, ID: "search", Revision: 2, Home: "o:acme", Data: &config.Team{
			ID: "search", Org: "acme", Scope: scope, Access: access, AllowTags: []string{"t"}, OnExhausted: []string{"m"},
			Cache: &config.CacheRule{Scope: "team", TTL: time.Minute + 1}, Blocked: true,
		}},
		{Kind: KindOrg, ID: "acme", Revision: 3, Home: "o:acme", Data: &config.Org{ID: "acme", Scope: scope, Access: access}},
		{Kind: KindUser, ID: "ada", Revision: 1<<63 - 1, Home: "u:ada", Data: &config.User{ID: "ada", Scope: scope}},
		{Kind: KindProject, ID: "rag", Revision: 5, Home: "o:acme", Data: &config.Project{ID: "rag", Team: "search", Scope: scope}},
		{Kind: KindMember, ID: "search/ada", Revision: 6, Home: "o:acme", Data: &config.TeamMember{Team: "search", User: "ada", Scope: scope}},
	}
	return append(rows,
		&Row{Kind: KindKey, ID: "ci", Revision: 7, Home: "o:acme", Secret: sum, Parts: rows, Data: &config.Key{
			ID: "ci", SecretSHA256: sum, Team: "search", User: "ada", Org: "acme", Project: "rag", Scope: scope, Access: access,
			Expires: until, Blocked: true, Tags: []string{"x"}, Cache: &config.CacheRule{},
		}},
		&Row{Kind: KindKey, ID: "bare", Revision: 1, Home: "k:bare", Secret: sum, Data: &config.Key{ID: "bare", SecretSHA256: sum}},
		&Row{Kind: KindEndUser, ID: "acme/eve <é>", Revision: 8, Data: &config.EndUser{ID: "eve <é>", Org: "acme", Scope: scope}},
		&Row{Kind: KindTag, ID: "batch", Revision: 9, Data: &config.Tag{ID: "batch", Scope: scope}},
		&Row{Kind: KindModel, ID: "gpt", Revision: 10, Data: &config.Model{
			Name: "gpt", Aliases: []string{"g"}, Strategy: "usage", Fallbacks: []string{"f"}, Limits: limits, Enforce: config.Audit,
			Deployments: []config.Deployment{{
				Name: "d", URL: "https://u/v1", Dialect: "openai", Provider: "p", Model: "m", Kind: config.CredentialEnvoy,
				Limits: limits, Enforce: config.Off, Weight: 2, Order: 3, Region: "eu", PriceFactor: 820_000, StreamUsage: true,
				Price: &config.Price{Input: n(1), Output: n(2), CacheRead: n(0), CacheWrite: n(4), CacheWrite1h: n(5), CacheWrite12h: n(6), Reasoning: n(7)},
			}},
		}},
		&Row{Kind: KindUser, ID: "gone", Revision: 11, Home: "u:gone", Deleted: true},
		&Row{Kind: KindKey, ID: "gone", Revision: 12, Home: "k:gone", Secret: sum, Deleted: true},
	)
}

// sameZone compares time zones by name.
var sameZone = cmp.Comparer(func(a, b *time.Location) bool {
	return (a == nil) == (b == nil) && (a == nil || a.String() == b.String())
})

func TestCodecRoundTrip(t *testing.T) {
	t.Parallel()
	for _, row := range full(t) {
		body, err := row.Encode()
		if err != nil {
			t.Errorf("%s %s: %v", row.Kind, row.ID, err)
			continue
		}
		if n, ok := revisionOf(string(body)); !ok || n != row.Revision {
			t.Errorf("%s %s: revision %d, %t at the beginning of %s", row.Kind, row.ID, n, ok, body)
		}
		got, err := Decode(body)
		if err != nil {
			t.Errorf("%s %s: %v in %s", row.Kind, row.ID, err, body)
			continue
		}
		if diff := cmp.Diff(row, got, sameZone); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", row.Kind, row.ID, diff)
		}
	}
}

// TestStoredForm pins what other processes, other versions and people read.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	row := &Row{Kind: KindTeam, ID: "s", Revision: 4, Home: "t:s", Data: &config.Team{ID: "s", Scope: config.Scope{Limits: config.Limits{
		Budgets: []config.Budget{{Unit: config.USD, Amount: 12_500_000_000, Per: config.Day}}, RPM: &config.Rate{Limit: 60},
	}}}}
	body, err := row.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"revision":4,"kind":"team","id":"s","home":"t:s","data":{"id":"s","limits":{"budgets":[{"unit":"usd","amount":12500000000,"per":"day"}],"rpm":{"limit":60}}}}`
	if string(body) != want {
		t.Errorf("stored as\n%s, want\n%s", body, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const good = `{"revision":4,"kind":"team","id":"s","home":"t:s","data":{"id":"s","limits":{"budgets":[{"unit":"usd","amount":5,"per":"day"}],"rpm":{"limit":60}}}}`
	if _, err := Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, old, new string }{
		{"no JSON", good, "7"},
		{"cut", `}}}}`, `}}}`},
		{"more after it", `}}}}`, `}}}} {}`},
		{"unknown member", `"id":"s","limits"`, `"id":"s","limit":1,"limits"`},
		{"member in another letter case", `"rpm"`, `"RPM"`},
		{"doubled member", `"id":"s","limits"`, `"id":"s","id":"s","limits"`},
		{"revision 0", `"revision":4`, `"revision":0`},
		{"revision below 0", `"revision":4`, `"revision":-4`},
		{"no revision", `"revision":4,`, ``},
		{"revision with a fraction", `"revision":4`, `"revision":4.5`},
		{"unknown kind", `"kind":"team"`, `"kind":"gang"`},
		{"another's data", `"kind":"team","id":"s"`, `"kind":"team","id":"t"`},
		{"no home", `"home":"t:s",`, ``},
		{"a home that ends the hash tag", `"t:s"`, `"t}s"`},
		{"an amount with a fraction", `"amount":5`, `"amount":5.5`},
		{"an amount as text", `"amount":5`, `"amount":"5"`},
		{"an amount below zero", `"amount":5`, `"amount":-5`},
		{"an amount above 2^53-1", `"amount":5`, `"amount":9007199254740992`},
		{"unknown unit", `"usd"`, `"eur"`},
		{"unknown period", `"day"`, `"year"`},
		{"unknown enforcement", `"rpm":{"limit":60}`, `"rpm":{"limit":60,"enforce":"maybe"}`},
		{"two budgets with one counter", `{"unit":"usd","amount":5,"per":"day"}`, `{"unit":"usd","amount":5,"per":"day"},{"unit":"usd","amount":6,"per":"day"}`},
		{"the machine's time zone", `"id":"s","limits"`, `"id":"s","timezone":"Local","limits"`},
		{"unknown time zone", `"id":"s","limits"`, `"id":"s","timezone":"Mars/Base","limits"`},
		{"a tombstone with data", `"home":"t:s"`, `"home":"t:s","deleted":true`},
		{"neither data nor tombstone", good[strings.Index(good, `,"data"`) : len(good)-1], ``},
		{"a secret of a team", `"home":"t:s"`, `"home":"t:s","secret_sha256":"` + hashed("a") + `"`},
		{"parts of a team", `"home":"t:s"`, `"home":"t:s","parts":[` + good + `]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if strings.Count(good, tt.old) < 1 {
				t.Fatalf("%q is not in the good row", tt.old)
			}
			bad := strings.Replace(good, tt.old, tt.new, 1)
			if row, err := Decode([]byte(bad)); err == nil {
				t.Errorf("decoded as %+v: %s", row, bad)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	sum := hashed("a")
	for _, tt := range []struct {
		name string
		row  Row
	}{
		{"nothing", Row{}},
		{"a key without its hash", Row{Kind: KindKey, ID: "k", Revision: 1, Home: "k:k", Data: &config.Key{ID: "k"}}},
		{"a key with another hash inside", Row{Kind: KindKey, ID: "k", Revision: 1, Home: "k:k", Secret: sum, Data: &config.Key{ID: "k"}}},
		{"a tag as a part", Row{Kind: KindKey, ID: "k", Revision: 1, Home: "k:k", Secret: sum, Data: &config.Key{ID: "k", SecretSHA256: sum},
			Parts: []*Row{{Kind: KindTag, ID: "t", Revision: 1, Data: &config.Tag{ID: "t"}}}}},
		{"two teams", Row{Kind: KindKey, ID: "k", Revision: 1, Home: "k:k", Secret: sum, Data: &config.Key{ID: "k", SecretSHA256: sum},
			Parts: []*Row{
				{Kind: KindTeam, ID: "t", Revision: 1, Home: "t:t", Deleted: true}, {Kind: KindTeam, ID: "u", Revision: 1, Home: "t:u", Deleted: true},
			}}},
		{"an amount too large", Row{Kind: KindUser, ID: "u", Revision: 1, Home: "u:u", Data: &config.User{ID: "u", Scope: config.Scope{
			Limits: config.Limits{RPM: &config.Rate{Limit: 1 << 53}}}}}},
		{"a control character in the id", Row{Kind: KindUser, ID: "u\n", Revision: 1, Home: "u:u", Data: &config.User{ID: "u\n"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if body, err := tt.row.Encode(); err == nil {
				t.Errorf("encoded as %s", body)
			}
		})
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	ref := Ref{KindEndUser, "acme/eve of the 3rd"}
	got, n, ok := parseMessage(message(ref, 1<<62))
	if got != ref || n != 1<<62 || !ok {
		t.Errorf("parsed as %v %d %t", got, n, ok)
	}
	for _, bad := range []string{"", "1", "1 team", "1 team ", "x team a", "0 team a", "-1 team a", "99999999999999999999 team a"} {
		if ref, n, ok := parseMessage(bad); ok {
			t.Errorf("%q parsed as %v %d", bad, ref, n)
		}
	}
}

// FuzzDecode: what can be decoded is a valid row, and is stored again as something that decodes to the same.
func FuzzDecode(f *testing.F) {
	for _, row := range full(f) {
		body, err := row.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"revision":1,"kind":"tag","id":"a","data":{"id":"a","limits":{"per_model":{"":{"budgets":[]}}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		row, err := Decode(body)
		if err != nil {
			return
		}
		first, err := row.Encode()
		if err != nil {
			t.Fatalf("decoded %s, which cannot be encoded: %v", body, err)
		}
		again, err := Decode(first)
		if err != nil {
			t.Fatalf("encoded as %s, which cannot be decoded: %v", first, err)
		}
		second, err := again.Encode()
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("stored as %s, then as %s (%v)", first, second, err)
		}
		if n, ok := revisionOf(string(first)); !ok || n != row.Revision {
			t.Fatalf("revision %d, %t at the beginning of %s", n, ok, first)
		}
	})
}

// TestModelsKeepTheirSecrets: what a provider is paid with is not written where others read.
func TestModelsKeepTheirSecrets(t *testing.T) {
	t.Parallel()
	r := &Row{Kind: KindModel, ID: "gpt", Revision: 1, Data: &config.Model{
		Name: "gpt", Deployments: []config.Deployment{{Name: "d", Credential: "sk-provider", Kind: config.CredentialSecret}},
	}}
	if b, err := r.Encode(); err == nil || !strings.Contains(err.Error(), "credential") || strings.Contains(err.Error(), "sk-provider") {
		t.Errorf("%s, %v", b, err)
	}
}
