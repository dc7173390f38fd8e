package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// rig is a store with a publisher and a memory whose clock stands still.
type rig struct {
	*testing.T
	backend   *pipeline.Backend
	publisher *Publisher
	memory    *Memory
	clock     atomic.Int64 // unix seconds
}

// onBoth runs a test on a real Redis and on the embedded store, which runs another Lua.
func onBoth(t *testing.T, test func(r *rig)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		backend, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		test(newRig(t, backend, Options{}))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		backend, err := pipeline.Open(pipeline.Options{URL: redistest.Start(t).URL(), Deadline: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		test(newRig(t, backend, Options{}))
	})
}

func newRig(t *testing.T, backend *pipeline.Backend, opt Options) *rig {
	r := &rig{T: t, backend: backend, publisher: &Publisher{Backend: backend, Prefix: "tg"}}
	r.clock.Store(1_800_000_000)
	opt.Backend, opt.Prefix, opt.Now = backend, "tg", func() time.Time { return time.Unix(r.clock.Load(), 0) }
	r.memory = NewMemory(opt)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.memory.Watch(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		r.memory.Close()
		_ = backend.Close()
	})
	r.until("the channel is up", func() bool { return !r.memory.Deaf() })
	return r
}

func (r *rig) until(what string, is func() bool) {
	r.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.Fatalf("never: %s", what)
}

func (r *rig) do(args ...any) any {
	r.Helper()
	v, err := pipeline.Declare(r.backend.Batch("test"), "test", pipeline.Raw, args...).Get(r.Context())
	if err != nil && !errors.Is(err, pipeline.ErrNil) {
		r.Fatal(err)
	}
	return v
}

func (r *rig) put(row *Row) {
	r.Helper()
	if err := r.publisher.Put(r.Context(), row); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) find(secret string) *Entry {
	r.Helper()
	e, err := r.memory.Lookup(sha256.Sum256([]byte(secret))).Wait(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return e
}

func (r *rig) known(secret string) *Entry { return r.memory.Key(sha256.Sum256([]byte(secret))) }

// refresh reads entries again.
func (r *rig) refresh(entries ...*Entry) {
	r.Helper()
	if err := r.memory.Refresh(r.backend.Batch("test"), entries).Get(r.Context()); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) stale(e *Entry) bool { return len(r.memory.Stale(nil, []*Entry{e}, 0)) > 0 }

func teamRow(revision, rpm int64) *Row {
	return &Row{Kind: KindTeam, ID: "s", Revision: revision, Home: "t:s", Data: &config.Team{
		ID: "s", Scope: config.Scope{Limits: config.Limits{RPM: &config.Rate{Limit: rpm}}},
	}}
}

func keyRow(secret string, revision int64, parts ...*Row) *Row {
	row := &Row{Kind: KindKey, ID: "key-" + secret, Revision: revision, Home: "t:s", Secret: hashed(secret), Parts: parts}
	row.Data = &config.Key{ID: row.ID, SecretSHA256: row.Secret}
	if len(parts) > 0 {
		row.Key().Team = "s"
	}
	return row
}

func TestOnlyHigherRevisionsReplace(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		const key, counters = "tg:i:team:s", "tg:{t:s}:b:team:s"
		stored := func(what string, revision, rpm int64) {
			r.Helper()
			raw, _ := r.do("GET", key).(string)
			row, err := Decode([]byte(raw))
			if err != nil {
				r.Fatalf("%s: %v", what, err)
			}
			if diff := cmp.Diff(teamRow(revision, rpm), row); diff != "" {
				r.Errorf("%s (-want +got):\n%s", what, diff)
			}
			if rev := r.do("HGET", counters, "rev"); rev != fmt.Sprint(revision) {
				r.Errorf("%s: revision %v beside the counters, want %d", what, rev, revision)
			}
		}
		r.do("SET", key, "not a row")
		r.put(teamRow(9, 1))
		stored("over something else", 9, 1)
		r.put(teamRow(10, 2)) // "10" sorts before "9" as text
		stored("over a lower revision", 10, 2)
		r.put(teamRow(10, 3))
		stored("the same revision again", 10, 2)
		if err := r.publisher.Put(r.Context(), teamRow(9, 4)); !errors.Is(err, ErrSuperseded) {
			r.Errorf("a lower revision: %v, want ErrSuperseded", err)
		}
		stored("after a lower one", 10, 2)
		r.put(teamRow(1<<62, 5))
		r.put(teamRow(1<<62+1, 6)) // the same number to Lua
		stored("revisions that differ in the last digit", 1<<62+1, 6)

		if err := r.publisher.Delete(r.Context(), teamRow(1<<62+2, 0)); err != nil {
			r.Fatal(err)
		}
		raw, _ := r.do("GET", key).(string)
		if want := `{"revision":4611686018427387906,"kind":"team","id":"s","home":"t:s","deleted":true}`; raw != want {
			r.Errorf("tombstone %s, want %s", raw, want)
		}
		if err := r.publisher.Put(r.Context(), teamRow(1<<62+1, 7)); !errors.Is(err, ErrSuperseded) {
			r.Errorf("a late edit of a deleted row: %v, want ErrSuperseded", err)
		}
		r.put(teamRow(1<<62+3, 8))
		stored("made again", 1<<62+3, 8)
		for _, k := range []string{key, counters} {
			if ttl := r.do("PTTL", k); ttl != int64(-1) {
				r.Errorf("%s lives %v ms, want for ever", k, ttl)
			}
		}
		r.do("LPUSH", "tg:i:tag:t", "x")
		r.put(&Row{Kind: KindTag, ID: "t", Revision: 1, Data: &config.Tag{ID: "t"}})
		if raw := r.do("GET", "tg:i:tag:t"); raw != `{"revision":1,"kind":"tag","id":"t","data":{"id":"t"}}` {
			r.Errorf("over a key of the wrong type: %v", raw)
		}
	})
}

func TestRaiseIsNeverLowered(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		key := limit.RevisionKey("tg", "t:s", "team", "s")
		r.do("HSET", key, "rev", "100", "since", "5")
		r.put(teamRow(99, 1))
		if rev := r.do("HGET", key, "rev"); rev != "100" {
			r.Errorf("revision %v, want the higher one that was there", rev)
		}
		r.put(teamRow(101, 1))
		if rev := r.do("HGET", key, "rev"); rev != "101" {
			r.Errorf("revision %v", rev)
		}
	})
}

func TestLookupAndLives(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.put(keyRow("a", 1, teamRow(3, 1)))
		if r.known("a") != nil {
			r.Fatal("known before it was looked up")
		}
		e := r.find("a")
		if diff := cmp.Diff(keyRow("a", 1, teamRow(3, 1)), e.Row()); diff != "" || r.known("a") != e || r.stale(e) {
			r.Fatalf("found, stale %t (-want +got):\n%s", r.stale(e), diff)
		}
		r.clock.Add(59)
		if r.stale(e) {
			r.Error("stale after 59 s")
		}
		r.clock.Add(1)
		if !r.stale(e) || r.known("a") != e {
			r.Error("after 60 s it must be stale, and still be used")
		}
		row := e.Row()
		r.refresh(e)
		if r.stale(e) || e.Row() != row {
			r.Error("read again and unchanged, it is fresh, and the same row")
		}

		if e := r.find("nobody"); e.Row() != nil || r.known("nobody") != e {
			r.Errorf("a key that is nowhere is %v", e.Row())
		}
		r.clock.Add(9)
		if r.known("nobody") == nil {
			r.Error("forgotten after 9 s")
		}
		r.clock.Add(1)
		if r.known("nobody") != nil {
			r.Error("still known as unknown after 10 s")
		}
	})
}

// TestCreationClearsUnknown also for a lookup that was under way when the key was made.
func TestCreationClearsUnknown(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.find("b")
		r.put(keyRow("b", 1))
		r.until("the key is no longer known as unknown", func() bool { return r.known("b") == nil })
		if e := r.find("b"); e.Row() == nil {
			r.Error("not found after its creation")
		}
		l := r.memory.Lookup(sha256.Sum256([]byte("c")))
		if _, err := l.Wait(r.Context()); err != nil {
			r.Fatal(err)
		}
		// The same again, in the order in which it hurts: asked, told of the creation, answered "nowhere".
		sum := sha256.Sum256([]byte("d"))
		late := &Lookup{done: make(chan struct{})}
		read := r.memory.Tick()
		r.memory.mu.Lock()
		r.memory.flights[sum] = late
		r.memory.mu.Unlock()
		r.memory.heard(message(Ref{KindKey, hashed("d")}, 1))
		r.memory.land(sum, Ref{KindKey, hashed("d")}, late, nil, read, nil)
		if r.known("d") != nil {
			r.Error("remembered as unknown although it was made meanwhile")
		}
	})
}

func TestMessagesMakeStale(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.put(keyRow("a", 5, teamRow(3, 1)))
		r.put(teamRow(3, 1))
		key := r.find("a")
		team := r.memory.Part(Ref{KindTeam, "s"}, key.Row().Parts[0])
		if !r.stale(team) || team.Row().Revision != 3 {
			r.Error("what came with a key is used and read again")
		}
		r.refresh(team)
		r.put(teamRow(4, 2))
		r.until("the team is stale", func() bool { return r.stale(team) })
		if r.stale(key) {
			r.Error("the key is stale too")
		}
		r.refresh(team)
		if r.stale(team) || team.Row().Revision != 4 {
			r.Errorf("after the refresh: stale %t, revision %d", r.stale(team), team.Row().Revision)
		}
		r.memory.heard(message(team.ref, 4))
		r.memory.heard(message(team.ref, 3))
		r.memory.heard(message(Ref{KindTeam, "other"}, 9))
		if r.stale(team) || r.stale(key) {
			r.Error("stale by messages that tell nothing new")
		}
		read := r.memory.Tick()
		r.memory.heard(message(team.ref, 5))
		team.take(teamRow(4, 2), read, time.Unix(r.clock.Load(), 0))
		if !r.stale(team) {
			r.Error("fresh by a read from before the message")
		}
		r.refresh(team)
		r.memory.heard("garbage")
		if !r.stale(team) || !r.stale(key) {
			r.Error("a message that cannot be read must make all stale")
		}
	})
}

// TestHigherRevisionWins wherever it comes from.
func TestHigherRevisionWins(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		ref := Ref{KindTeam, "s"}
		r.put(teamRow(4, 4))
		team := r.memory.Part(ref, teamRow(3, 3))
		r.refresh(team)
		if got := team.Row().Revision; got != 4 {
			r.Errorf("revision %d, want that of redis", got)
		}
		if r.memory.Part(ref, teamRow(2, 2)); team.Row().Revision != 4 || r.stale(team) {
			r.Error("an old part of a key replaced what memory knows")
		}
		if r.memory.Part(ref, teamRow(9, 9)); team.Row().Revision != 9 || !r.stale(team) {
			r.Error("a newer part of a key must be used, and be read again")
		}
		r.refresh(team)
		if team.Row().Revision != 9 || r.stale(team) {
			r.Error("an older copy in redis replaced what memory knows")
		}
		r.do("DEL", "tg:i:team:s")
		r.clock.Add(60)
		r.refresh(team)
		if team.Row() == nil || team.Row().Revision != 9 || r.stale(team) {
			r.Error("the limits of a team ended because redis lost its copy")
		}
	})
}

// TestKeyThatRedisLost is no key, once it is looked at again.
func TestKeyThatRedisLost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.put(keyRow("a", 1))
		e := r.find("a")
		r.do("DEL", "tg:i:key:"+hashed("a"))
		r.refresh(e)
		if e.Row() != nil {
			r.Error("still a key")
		}
		r.put(keyRow("a", 1))
		r.refresh(e)
		if e.Row() == nil {
			r.Error("not found when it was back")
		}
	})
}

func TestBounds(t *testing.T) {
	t.Parallel()
	backend, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, backend, Options{MaxKeys: 20, MaxParts: 20, MaxUnknown: 10})
	for i := range 60 {
		r.find(fmt.Sprint("nobody-", i))
		r.memory.Part(Ref{KindUser, fmt.Sprint(i)}, nil)
	}
	r.put(keyRow("busy", 1))
	busy := r.find("busy")
	for i := range 60 {
		r.clock.Add(1)
		name := fmt.Sprint("key-", i)
		r.put(keyRow(name, 1))
		r.find(name)
		if r.known("busy") == nil {
			t.Fatalf("the key in use went, after %d others", i)
		}
	}
	r.memory.mu.RLock()
	defer r.memory.mu.RUnlock()
	if k, p, u := len(r.memory.keys.rows), len(r.memory.parts.rows), len(r.memory.unknown.rows); k != 20 || p != 20 || u != 10 {
		t.Errorf("%d keys, %d parts, %d unknown keys, want 20, 20, 10", k, p, u)
	}
	if busy.Gone() {
		t.Error("the key in use counts as gone")
	}
}

// TestGoneEntriesAreNeverFresh: no message would reach them.
func TestGoneEntriesAreNeverFresh(t *testing.T) {
	t.Parallel()
	backend, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, backend, Options{MaxKeys: 1})
	r.put(keyRow("a", 1))
	r.put(keyRow("b", 1))
	a := r.find("a")
	if r.stale(a) {
		t.Fatal("stale from the beginning")
	}
	r.find("b")
	if !a.Gone() || !r.stale(a) || r.known("a") != nil {
		t.Error("an entry that left memory is still trusted")
	}
}

func TestStoresThatDoNotTell(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	backend, err := pipeline.Open(pipeline.Options{URL: proxy.URL(), Deadline: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, backend, Options{})
	r.put(keyRow("a", 1))
	e := r.find("a")
	wait := func(secret string) error {
		_, err := r.memory.Lookup(sha256.Sum256([]byte(secret))).Wait(t.Context())
		return err
	}
	copyOf := func(secret string) string { return "tg:i:key:" + hashed(secret) }
	r.do("SET", copyOf("bad"), "{}")
	r.do("LPUSH", copyOf("list"), "x")
	r.do("SET", copyOf("moved"), r.do("GET", copyOf("a")))
	for _, secret := range []string{"bad", "list", "moved"} {
		if err := wait(secret); err == nil || errors.Is(err, pipeline.ErrUnavailable) {
			t.Errorf("%s: %v, want an error of the copy", secret, err)
		}
		if r.known(secret) != nil {
			t.Errorf("%s: remembered", secret)
		}
	}
	proxy.Refuse(true)
	if err := wait("b"); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("a lookup without redis: %v", err)
	}
	if err := r.memory.Refresh(backend.Batch("test"), []*Entry{e}).Get(t.Context()); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("a refresh without redis: %v", err)
	}
	if e.Row() == nil {
		t.Error("an outage made a key unknown")
	}
	r.until("everything is stale without the channel", func() bool { return r.memory.Deaf() && r.stale(e) })
	if err := r.publisher.Put(t.Context(), keyRow("a", 2)); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("an edit without redis: %v", err)
	}
	proxy.Refuse(false)
	r.until("the channel is back", func() bool { return !r.memory.Deaf() })
	if !r.stale(e) {
		t.Error("fresh although messages may have been missed")
	}
	r.until("redis is asked again, and answers", func() bool {
		return r.memory.Refresh(backend.Batch("test"), []*Entry{e}).Get(t.Context()) == nil
	})
	if r.stale(e) {
		t.Error("stale after the refresh")
	}
}

func TestReadByTheRequestItselfIsFresh(t *testing.T) {
	t.Parallel()
	backend, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, backend, Options{})
	r.put(keyRow("a", 1))
	e := r.find("a")
	r.memory.down.Store(true)
	refresh := r.memory.Refresh(backend.Batch("test"), []*Entry{e})
	if err := refresh.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.memory.Stale(nil, []*Entry{e}, refresh.Tick())) != 0 {
		t.Error("stale for the request that has just read it")
	}
	if len(r.memory.Stale(nil, []*Entry{e}, r.memory.Tick())) != 1 || !r.stale(e) {
		t.Error("fresh for others although the channel is lost")
	}
	r.memory.down.Store(false)
}

// TestManyAtOnce is for the race detector.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	backend, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, backend, Options{MaxKeys: 4, MaxParts: 2, MaxUnknown: 2})
	var users sync.WaitGroup
	for i := range 8 {
		users.Go(func() {
			for n := range 40 {
				secret := fmt.Sprint("s", (i+n)%6)
				e := r.memory.Key(sha256.Sum256([]byte(secret)))
				if e == nil {
					e, _ = r.memory.Lookup(sha256.Sum256([]byte(secret))).Wait(t.Context())
				}
				team := r.memory.Part(Ref{KindTeam, "s"}, teamRow(int64(n+1), 1))
				if stale := r.memory.Stale(nil, []*Entry{e, team}, 0); len(stale) > 0 {
					_ = r.memory.Refresh(backend.Batch("test"), stale).Get(t.Context())
				}
				if row := e.Row(); row != nil && row.Secret != hashed(secret) {
					t.Errorf("%s found %s", secret, row.ID)
				}
			}
		})
	}
	users.Go(func() {
		for n := range 30 {
			_ = r.publisher.Put(t.Context(), keyRow(fmt.Sprint("s", n%5), int64(n+1)))
			_ = r.publisher.Put(t.Context(), teamRow(int64(n+1), 1))
		}
	})
	users.Wait()
}
