package governance

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

func TestColdKeyAndWarmKey(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	rig.create(acme())
	r := rig.replicas[0]
	r.proxy.Reset()
	r.passes("cold", 2)
	r.settled()
	r.passes("warm", 1)
}

func TestColdLookupBeforeTheBody(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	rig.create(acme())
	r := rig.replicas[0]
	r.proxy.Reset()
	call, reply := r.gate.Begin(Head{Method: "POST", Path: "/v1/chat/completions", Headers: rowHeaders{"authorization": {"Bearer " + rowSecret}}})
	if reply != nil {
		t.Fatalf("refused by its headers: %s", reply.Body)
	}
	defer call.End()
	r.until("the key is asked for before the body is there", func() bool { return len(r.proxy.Trips()) == 1 })
	if cmd := r.proxy.Trips()[0].Commands; len(cmd) != 1 || strings.Join(cmd[0], " ") != "GET tg:i:key:"+sumOf(rowSecret) {
		t.Errorf("asked with %v", cmd)
	}
	if _, reply := call.Admit(t.Context(), []byte(rowBody)); reply != nil || call.trips != 2 {
		t.Errorf("reply %v after %d waits, want to pass after 2", reply, call.trips)
	}
	trips := r.proxy.Trips()
	if len(trips) < 2 || len(trips[1].Commands) != 6 {
		t.Errorf("the second trip is %v, want the admission and the reading of five rows", trips[1:])
	}
}

func TestConcurrentColdRequestsShareOneLookup(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	rig.create(acme())
	r := rig.replicas[0]
	r.proxy.Reset()
	r.proxy.Delay(100 * time.Millisecond)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			o := r.ask(rowSecret)
			if o.status != 0 {
				t.Errorf("status %d %s", o.status, o.body)
			}
			o.end()
		})
	}
	calls.Wait()
	lookups := 0
	for _, trip := range r.proxy.Trips() {
		if strings.HasPrefix(strings.ToLower(trip.Commands[0][0]), "eval") {
			continue // a refresh beside an admission: pings were late, and everything stale
		}
		for _, cmd := range trip.Commands {
			if strings.EqualFold(cmd[0], "get") && strings.HasPrefix(cmd[1], "tg:i:key:") {
				lookups++
			}
		}
	}
	if lookups != 1 {
		t.Errorf("%d lookups of one key", lookups)
	}
}

// TestUnknownKey: it costs one look, and then none until it is created.
func TestUnknownKey(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 2, nil, nil)
	for _, r := range rig.replicas {
		r.refused("first", 401, "unknown_key", 1)
		r.refused("again", 401, "unknown_key", 0)
	}
	rig.create(acme())
	for _, r := range rig.replicas {
		r.until("the created key is served", func() bool { o := r.ask(rowSecret); o.end(); return o.status == 0 })
	}
}

// TestOff: without identities in Redis an unknown key costs nothing at all, and nobody subscribes.
func TestOff(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, func(o *Options) { o.Identities = false })
	rig.create(acme())
	r := rig.replicas[0]
	r.proxy.Reset()
	r.refused("unknown", 401, "unknown_key", 0)
	if n := rig.server.Client().PubSubNumSub(t.Context(), "tg:invalidate").Val()["tg:invalidate"]; n != 0 {
		t.Errorf("%d subscribers", n)
	}
	o := r.ask("sk-file")
	if o.status != 0 || o.waits != 0 {
		t.Errorf("a key of the file without limits: status %d after %d waits", o.status, o.waits)
	}
	o.end()
}

// TestFileStandsInFront: its keys by secret and by id, its teams by id.
func TestFileStandsInFront(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, func(cfg *config.Config) {
		cfg.Teams = []config.Team{{ID: "search", Scope: config.Scope{Limits: config.Limits{RPM: &config.Rate{Limit: 2}}}}}
	}, nil)
	x := acme()
	x.team.Blocked = true
	x.team.Org, x.key.User, x.key.Project = "", "", ""
	rig.put(x.parts(1)[0], &identity.Row{
		Kind: identity.KindKey, ID: "k", Revision: 1, Home: "t:search", Secret: x.key.SecretSHA256, Data: &x.key, Parts: x.parts(1)[:1],
	})
	same := config.Key{ID: "other", SecretSHA256: sumOf("sk-file"), Blocked: true}
	rig.put(&identity.Row{Kind: identity.KindKey, ID: "other", Revision: 1, Home: "k:other", Secret: same.SecretSHA256, Data: &same})
	twin := config.Key{ID: "file", SecretSHA256: sumOf("sk-twin")}
	rig.put(&identity.Row{Kind: identity.KindKey, ID: "file", Revision: 1, Home: "k:file", Secret: twin.SecretSHA256, Data: &twin})

	r := rig.replicas[0]
	r.proxy.Reset()
	if o := r.ask("sk-file"); o.status != 0 || o.waits != 0 || o.call.caller.key.ID != "file" {
		t.Errorf("a secret that both have: status %d %s", o.status, o.reason)
	} else {
		o.end()
	}
	if o := r.ask("sk-twin"); o.status != 401 || o.reason != "tollgate_unknown_key" {
		t.Errorf("an id that both have: status %d %s, want 401", o.status, o.reason)
	}
	r.passes("a key whose team the file has", 2)
	r.passes("again", 1)
	r.refused("beyond the limit of the file's team", 429, "rpm", 1)
	for _, trip := range r.proxy.Trips() {
		for _, cmd := range trip.Commands {
			if len(cmd) > 1 && cmd[1] == "tg:i:team:search" {
				t.Errorf("the file's team was read in Redis: %v", cmd)
			}
		}
	}
}

// TestStoreDown: what the store does not tell is 503, never 401.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"deny", "local", "allow"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			rig := newRowsRig(t, 1, func(cfg *config.Config) {
				cfg.Redis.OnFailure.UnknownKey = policy
				cfg.Redis.OnFailure.Budgets = "allow"
			}, nil)
			x := acme()
			rig.create(x)
			r := rig.replicas[0]
			r.passes("while redis answers", 2)
			r.settled()
			r.proxy.Refuse(true)
			r.until("the channel is lost", r.gate.rows.Deaf)
			if o := r.ask(rowSecret); o.status != 0 {
				t.Errorf("a key that memory has: status %d %s", o.status, o.body)
			} else {
				o.end()
			}
			o := r.ask("sk-never-seen")
			want := 503
			if policy == "allow" {
				want = 0
			}
			if o.status != want {
				t.Errorf("a key that memory lacks: status %d %s, want %d", o.status, o.reason, want)
			}
			if want == 0 {
				if o.call.caller.key.ID != "anonymous" || o.call.caller.cacheTTL != 0 {
					t.Errorf("it passes as %q, cached for %v", o.call.caller.key.ID, o.call.caller.cacheTTL)
				}
				o.end()
			}
			r.proxy.Refuse(false)
			r.until("what was lent is settled", func() bool { return r.gate.Pending() == 0 && !r.gate.rows.Deaf() })
			r.until("the key is known as unknown", func() bool { return r.ask("sk-never-seen").status == 401 })
		})
	}
}

// TestRowsThatDoNotFit: a key without a row that it cannot do without is an error of the store until the row is there.
func TestRowsThatDoNotFit(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	x := acme()
	parts := x.parts(1)
	row := x.keyRow(1)
	row.Parts = nil
	rig.put(append(parts[1:], row)...) // all but the team
	r := rig.replicas[0]
	r.refusedAs("cold, its team is nowhere", "store_unreachable")
	r.refused("warm, its team is nowhere", 503, "store_unreachable", 0)
	rig.put(parts[0])
	r.until("the team that was made is seen", func() bool { o := r.ask(rowSecret); o.end(); return o.status == 0 })
	x.team.Org = "other"
	x.org.ID = "other"
	rig.put(x.parts(2)[0])
	r.until("the team has moved to an org that is nowhere", func() bool { return r.request("GET", "/v1/models", rowSecret, "").status == 503 })
	r.refusedAs("after that", "store_unreachable")
	rig.put(x.parts(2)[1])
	r.until("its new org is seen", func() bool { o := r.ask(rowSecret); o.end(); return o.status == 0 })
	if o := r.ask(rowSecret); o.call.caller.key.Org.ID != "other" {
		t.Errorf("decided for org %q", o.call.caller.key.Org.ID)
	} else {
		o.end()
	}
}

// TestBlockedInAnOldCopyWithoutStore: what an old copy refuses is not final, and nothing newer can be had.
func TestBlockedInAnOldCopyWithoutStore(t *testing.T) {
	t.Parallel()
	rig := newRowsRig(t, 1, nil, nil)
	x := acme()
	x.key.Blocked = true
	rig.create(x)
	r := rig.replicas[0]
	r.refused("cold", 401, "blocked", 2) // the team is looked at too
	r.refused("warm", 401, "blocked", 0)
	r.proxy.Refuse(true)
	r.until("the channel is lost", r.gate.rows.Deaf)
	r.refusedAs("without redis", "store_unreachable")
}

// TestWarmRowAllocatesNothing: finding a key of Redis in memory, with all it belongs to, costs no garbage.
func TestWarmRowAllocatesNothing(t *testing.T) {
	rig := newRowsRig(t, 1, nil, nil)
	rig.create(acme())
	r := rig.replicas[0]
	r.passes("cold", 2)
	r.settled()
	o := r.ask(rowSecret)
	defer o.end()
	sum := sum32(rowSecret)
	if n := testing.AllocsPerRun(100, func() {
		o.call.fresh.entry = r.gate.rows.Key(sum)
		o.call.look()
	}); n != 0 || o.call.fresh.tentative {
		t.Errorf("%v allocations, tentative %t", n, o.call.fresh.tentative)
	}
}

// source is a place behind Redis.
type source struct {
	mu   sync.Mutex
	rows map[identity.Ref]*identity.Row
	asks int
	fail error
}

func (s *source) Find(_ context.Context, refs []identity.Ref) ([]*identity.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks++
	list := make([]*identity.Row, len(refs))
	for i, ref := range refs {
		list[i] = s.rows[ref]
	}
	return list, s.fail
}

// TestSource: what only the source has is found there once, and in Redis from then on.
func TestSource(t *testing.T) {
	t.Parallel()
	behind := &source{rows: map[identity.Ref]*identity.Row{}}
	rig := newRowsRig(t, 1, nil, func(o *Options) { o.Source = behind })
	rig.put(&identity.Row{Kind: identity.KindTag, ID: "t", Revision: 1, Data: &config.Tag{ID: "t"}}) // redis has the script now
	x := acme()
	for _, row := range append(x.parts(1), x.keyRow(1)) {
		behind.rows[row.Ref()] = row
	}
	r := rig.replicas[0]
	r.passes("known to the source only", 2)
	r.settled()
	if behind.asks != 2 { // for the key, and for all that it belongs to at once
		t.Errorf("the source was asked %d times, want 2", behind.asks)
	}
	if n := rig.server.Client().Exists(t.Context(), "tg:i:key:"+sumOf(rowSecret), "tg:i:team:search", "tg:i:org:acme", "tg:i:user:ada", "tg:i:project:rag").Val(); n != 5 {
		t.Errorf("%d of 5 copies are in redis", n)
	}
	r.passes("warm", 1)
	if o := r.ask("sk-nowhere"); o.status != 401 || behind.asks != 3 {
		t.Errorf("a key that is nowhere: status %d, the source was asked %d times", o.status, behind.asks)
	}
	behind.mu.Lock()
	behind.fail = context.DeadlineExceeded
	behind.mu.Unlock()
	if o := r.ask("sk-elsewhere"); o.status != 503 {
		t.Errorf("while the source does not answer: status %d, want 503", o.status)
	}
}

// TestEmbeddedStore: identities live in the in-process store as well.
func TestEmbeddedStore(t *testing.T) {
	t.Parallel()
	backend, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := newReplica(t, backend, nil, nil)
	publisher := &identity.Publisher{Backend: backend, Prefix: "tg"}
	x := acme()
	for _, row := range append(x.parts(1), x.keyRow(1)) {
		if err := publisher.Put(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	r.passes("cold", 2)
	r.settled()
	r.passes("warm", 1)
	x.key.Blocked = true
	if err := publisher.Put(t.Context(), x.keyRow(2)); err != nil {
		t.Fatal(err)
	}
	if o := r.ask(rowSecret); o.status != 401 || o.reason != "tollgate_blocked" {
		t.Errorf("blocked: status %d %s", o.status, o.reason)
	}
}
