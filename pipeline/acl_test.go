package pipeline_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// withoutSet may do everything but SET.
var withoutSet = redistest.User{Name: "gate", Password: "s:e/c@r?t#", Rules: []string{"~*", "&*", "+@all", "-set"}}

func TestUserOfTheServer(t *testing.T) {
	t.Parallel()
	nobody := redistest.User{Name: "default", Password: "other", Rules: []string{"~*", "+@all"}}
	server := redistest.Start(t, redistest.Users(withoutSet, nobody)...)
	escaped := url.UserPassword(withoutSet.Name, withoutSet.Password).String()
	plain := "redis://" + server.Addr()
	for _, tt := range []struct {
		name     string
		opt      pipeline.Options
		turnedBy string // "" lets in
	}{
		{"in the URL", pipeline.Options{URL: server.URLAs(withoutSet)}, ""},
		{"in the URL, percent-encoded", pipeline.Options{URL: "redis://" + escaped + "@" + server.Addr()}, ""},
		{"beside it", pipeline.Options{URL: plain, Username: withoutSet.Name, Password: withoutSet.Password}, ""},
		{"the password beside it", pipeline.Options{URL: "redis://gate@" + server.Addr(), Password: withoutSet.Password}, ""},
		{"of the default user", pipeline.Options{URL: plain, Password: "other"}, ""},
		{"a wrong password", pipeline.Options{URL: plain, Username: "gate", Password: "wrong"}, "WRONGPASS"},
		{"an unknown user", pipeline.Options{URL: plain, Username: "ghost", Password: "other"}, "WRONGPASS"},
		{"no password", pipeline.Options{URL: plain}, "NOAUTH"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.opt.Deadline = 5 * time.Second
			b := open(t, tt.opt)
			_, err := pipeline.Declare(b.Batch("r"), "o", pipeline.Bytes, "GET", "x").Get(t.Context())
			if tt.turnedBy == "" {
				if !errors.Is(err, pipeline.ErrNil) {
					t.Errorf("get: %v", err)
				}
				if err := b.Ping(t.Context()); err != nil {
					t.Errorf("ping: %v", err)
				}
				return
			}
			for what, err := range map[string]error{"get": err, "ping": b.Ping(t.Context()), "policy": b.CheckMemoryPolicy(t.Context())} {
				if !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), tt.turnedBy) {
					t.Errorf("%s: %v, want %s", what, err, tt.turnedBy)
				}
				if err != nil && tt.opt.Password != "" && strings.Contains(err.Error(), tt.opt.Password) {
					t.Errorf("%s tells the password: %v", what, err)
				}
			}
		})
	}
}

// A command that the user may not send fails for its owner, and for nobody else.
func TestForbiddenCommand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Users(withoutSet)...)
	b := open(t, pipeline.Options{URL: server.URLAs(withoutSet), Deadline: 5 * time.Second})
	batch := b.Batch("r")
	before := pipeline.Declare(batch, "a", pipeline.Bytes, "GET", "x")
	forbidden := pipeline.Declare(batch, "b", pipeline.Raw, "SET", "x", "1")
	script := pipeline.Eval(batch, "c", integer, count, []string{"n"})
	if _, err := before.Get(t.Context()); !errors.Is(err, pipeline.ErrNil) {
		t.Errorf("before it: %v", err)
	}
	if _, err := forbidden.Get(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") || errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("forbidden: %v", err)
	}
	if n, err := script.Get(t.Context()); n != 1 || err != nil {
		t.Errorf("behind it: %d, %v", n, err)
	}
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	w := d.Writes()
	w.Do("a", "SET", "x", "1") // forbidden
	w.Once("b", once, []string{"w:" + w.Writer(), "sum"}, 1)
	w.Close()
	drain(t, d)
	// The script itself calls SET, for its number: it is refused as a whole, and said to be.
	if s := d.Stats(); s.Refused != 1 || server.Client().Exists(t.Context(), "sum", "x").Val() != 0 {
		t.Errorf("%d writes were refused, want the one that is applied once", s.Refused)
	}
	if !b.Answering() {
		t.Error("a server that forbids a command counts as one that is away")
	}
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", withoutSet.Name, "-info").Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.CheckMemoryPolicy(t.Context()); err != nil {
		t.Errorf("a server that does not tell its policy: %v", err)
	}
	if m, err := b.Memory(t.Context()); len(m) != 0 || err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("a server that does not tell its memory: %v, %v", m, err)
	}
}

// A password that was changed on the server only: requests fail as in any outage, and no write passes for refused. They
// leave once the two agree.
func TestChangedPassword(t *testing.T) {
	t.Parallel()
	user := redistest.User{Name: "gate", Password: "new", Rules: []string{"~*", "&*", "+@all"}}
	server := redistest.Start(t, redistest.Users(user)...)
	b := open(t, pipeline.Options{URL: "redis://" + server.Addr(), Username: "gate", Password: "old", Deadline: 5 * time.Second})
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	for range 10 {
		add(d, 1)
	}
	for range 3 {
		if err := counts(t, b, "n"); !errors.Is(err, pipeline.ErrUnavailable) {
			t.Errorf("a request: %v", err)
		}
	}
	if b.Answering() {
		t.Error("a server that lets nobody in counts as one that answers")
	}
	if n := d.Pending(); n != 10 {
		t.Errorf("%d writes are pending, want all 10", n)
	}
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "gate", ">old").Err(); err != nil {
		t.Fatal(err)
	}
	returns(t, "requests", func() error { return counts(t, b, "n") })
	drain(t, d)
	if got := sum(t, server, "sum"); got != "10" {
		t.Errorf("sum = %s, want 10", got)
	}
}

// A server that is out of connections is away, whatever it says; no write is refused by that.
func TestServerOutOfConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, pipeline.Options{URL: server.URL(), Deadline: 5 * time.Second})
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	if err := server.Client().ConfigSet(t.Context(), "maxclients", "1").Err(); err != nil {
		t.Fatal(err)
	}
	add(d, 1)
	if err := counts(t, b, "n"); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("a request: %v", err)
	}
	if err := server.Client().ConfigSet(t.Context(), "maxclients", "100").Err(); err != nil {
		t.Fatal(err)
	}
	returns(t, "requests", func() error { return counts(t, b, "n") })
	drain(t, d)
	if got := sum(t, server, "sum"); got != "1" {
		t.Errorf("sum = %s, want 1", got)
	}
}
