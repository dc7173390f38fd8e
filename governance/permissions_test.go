package governance

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// documented is the user that the README says to make.
func documented(t *testing.T) redistest.User {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		if rest, ok := strings.CutPrefix(line, "ACL SETUSER tollgate on >PASSWORD "); ok {
			return redistest.User{Name: "tollgate", Password: "secret", Rules: strings.Fields(rest)}
		}
	}
	t.Fatal("README.md has no line that makes the user")
	return redistest.User{}
}

// everyLimit has each kind of limit, and a budget with a period and one without.
func everyLimit() config.Limits {
	l := usdBudget(1)
	l.Budgets = append(l.Budgets, config.Budget{Unit: config.Tokens, Amount: 1_000_000, Per: config.Day})
	l.RPM, l.TPM, l.Parallel = &config.Rate{Limit: 1000}, &config.Rate{Limit: 1_000_000}, &config.Rate{Limit: 10}
	return l
}

// restricted is a gate whose user may do what the README says, or some of it.
type restricted struct {
	*replica
	admin     *redis.Client
	publisher *identity.Publisher
}

func newRestricted(t *testing.T, user redistest.User, whole bool) *restricted {
	t.Helper()
	server := redistest.Start(t, redistest.Users(user)...)
	backend, err := pipeline.Open(pipeline.Options{URL: server.URLAs(user), Deadline: 5 * time.Second, Eval: whole})
	if err != nil {
		t.Fatal(err)
	}
	x := &restricted{admin: server.Client(), publisher: &identity.Publisher{Backend: backend, Prefix: "tg"}}
	x.replica = newReplica(t, backend, func(cfg *config.Config) {
		cached(cfg)
		cfg.Keys[0].Limits = everyLimit()
		cfg.Models[0].Deployments[0].Limits = config.Limits{RPM: &config.Rate{Limit: 1000}, Parallel: &config.Rate{Limit: 10}}
	}, nil)
	return x
}

// work does all that a gate does to its Redis.
func (x *restricted) work() {
	x.Helper()
	ctx, g := x.Context(), x.gate
	if err := g.Ready(ctx); err != nil {
		x.Fatalf("ready: %v", err)
	}
	if err := g.backend.Ping(ctx); err != nil {
		x.Errorf("ping: %v", err)
	}
	if !g.load(ctx) {
		x.Fatal("the scripts cannot be loaded")
	}
	if _, err := g.limiter.Replicas(ctx, g.backend, g.deferred.Writer()); err != nil {
		x.Errorf("replicas: %v", err)
	}
	if _, err := g.backend.Memory(ctx); err != nil {
		x.Errorf("memory: %v", err)
	}
	// Of the file and of Redis, with a script that is lost, cached, and edited.
	x.answers("first", 0)
	x.until("the answer is kept", func() bool { return len(x.admin.Keys(ctx, "tg:c:*").Val()) == 1 })
	x.answers("first", 200)
	x.admin.ScriptFlush(ctx)
	x.answers("second", 0)
	tenant := acme()
	tenant.team.Limits = everyLimit()
	for _, row := range append(tenant.parts(1), tenant.keyRow(1)) {
		if err := x.publisher.Put(ctx, row); err != nil {
			x.Errorf("put: %v", err)
		}
	}
	x.passesRow()
	edited := tenant.keyRow(2)
	if err := x.publisher.Put(ctx, edited); err != nil {
		x.Errorf("edit: %v", err)
	}
	x.passesRow()
	x.leases()
}

// answers sends a request of the file's key.
func (x *restricted) answers(text string, status int) {
	x.Helper()
	if o := x.chat(text); o.status != status {
		x.Errorf("%s: %d %s, want %d: %s", text, o.status, o.reason, status, o.body)
	}
	x.settled()
}

func (x *restricted) passesRow() {
	x.Helper()
	o := x.ask(rowSecret)
	if o.status != 0 {
		x.Errorf("a key of Redis: %d %s: %s", o.status, o.reason, o.body)
	}
	o.end()
	x.settled()
}

// dead is how many leases a dead process leaves: more than one admission drops.
const dead = 70

// leases renews a lease, puts back one that was lost, and drops those of a dead process.
func (x *restricted) leases() {
	x.Helper()
	ctx := x.Context()
	key := "tg:{k:file}:l:key:file"
	o := x.request("POST", "/v1/chat/completions", "sk-file", question("held"))
	if o.status != 0 {
		x.Fatalf("held: %d %s", o.status, o.body)
	}
	members := x.admin.ZRange(ctx, key, 0, -1).Val()
	if len(members) != 1 {
		x.Fatalf("leases %v, want one", members)
	}
	x.gate.limiter.Renew(x.gate.deferred, true)
	x.settled()
	x.admin.ZRem(ctx, key, members[0])
	x.gate.limiter.Renew(x.gate.deferred, true)
	x.settled()
	if n := x.admin.ZCard(ctx, key).Val(); n != 1 {
		x.Errorf("%d leases after the renewal of one that was lost, want 1", n)
	}
	for i := range dead {
		member := strings.Replace(members[0], o.call.id, fmt.Sprintf("0190163d-8694-739b-aea5-%012x", i), 1)
		x.admin.ZAdd(ctx, key, redis.Z{Score: 1, Member: member})
	}
	x.answers("after a process died", 0)
	x.answers("and again", 0)
	if n := x.admin.ZCard(ctx, key).Val(); n != 1 {
		x.Errorf("%d leases when those of the dead have run out, want 1", n)
	}
	o.end()
	x.settled()
	if n := x.admin.ZCard(ctx, key).Val(); n != 0 {
		x.Errorf("%d leases at the end", n)
	}
}

// denied is what the server has forbidden since the last time.
func (x *restricted) denied() []string {
	x.Helper()
	entries, err := x.admin.ACLLog(x.Context(), 100).Result()
	if err != nil {
		x.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%s %s of %s", e.Reason, e.Object, e.Username))
	}
	return list
}

// records is how many spend records there are.
func (x *restricted) records() (n int64) {
	x.Helper()
	for i := range 16 {
		n += x.admin.XLen(x.Context(), fmt.Sprintf("tg:spend:{%d}", i)).Val()
	}
	return n
}

// wholeScripts are the permissions that a server does without that takes whole scripts only.
var wholeScripts = []string{"+evalsha", "+script|load"}

// The user of the README may do all that tollgate does.
func TestDocumentedUserSuffices(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("eval %t", whole), func(t *testing.T) {
			t.Parallel()
			user := documented(t)
			if whole {
				user.Rules = slices.DeleteFunc(user.Rules, func(r string) bool { return slices.Contains(wholeScripts, r) })
			}
			x := newRestricted(t, user, whole)
			x.work()
			if list := x.denied(); len(list) > 0 {
				t.Errorf("forbidden: %q", list)
			}
			// Four answers and a hit, two requests of a row that nobody answered, one held, and those of the dead process.
			if n := x.records(); n != 8+dead {
				t.Errorf("%d spend records, want %d", n, 8+dead)
			}
		})
	}
}

// And it may do nothing besides: what it may call was called.
func TestDocumentedUserMayNoMore(t *testing.T) {
	t.Parallel()
	x := newRestricted(t, documented(t), false)
	if err := x.admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	x.work()
	stats := x.admin.Info(t.Context(), "commandstats").Val()
	for _, rule := range documented(t).Rules {
		name, allowed := strings.CutPrefix(rule, "+")
		if !allowed || name == "subscribe" { // that was before the count began: nothing is heard without it
			continue
		}
		if !strings.Contains(stats, "cmdstat_"+name+":calls=") {
			t.Errorf("%s is allowed, and was never called", name)
		}
	}
	for _, rule := range []string{"~tg:*", "&tg:invalidate", "-@all"} {
		if !slices.Contains(documented(t).Rules, rule) {
			t.Errorf("the user lacks the bound %s", rule)
		}
	}
}

// More is needed of another database and of a cluster, and that is enough there.
func TestDocumentedUserElsewhere(t *testing.T) {
	t.Parallel()
	user := documented(t)
	get := func(b *pipeline.Backend, key string) error {
		_, err := pipeline.Declare(b.Batch("r"), "o", pipeline.Bytes, "GET", key).Get(t.Context())
		return err
	}
	open := func(url string, u redistest.User) *pipeline.Backend {
		t.Helper()
		b, err := pipeline.Open(pipeline.Options{URL: url, Username: u.Name, Password: u.Password, Deadline: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	selects := redistest.User{Name: "selects", Password: "s", Rules: append(documented(t).Rules, "+select")}
	server := redistest.Start(t, redistest.Users(user, selects)...)
	if err := get(open("redis://"+server.Addr()+"/1", selects), "tg:x"); !errors.Is(err, pipeline.ErrNil) {
		t.Errorf("database 1: %v", err)
	}
	if err := get(open("redis://"+server.Addr()+"/1", user), "tg:x"); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("database 1 without +select: %v", err)
	}

	user.Rules = append(user.Rules, "+cluster|slots", "+asking")
	c := redistest.StartCluster(t, redistest.Args(redistest.Users(user)...))
	b := open(c.URL(), user)
	if err := get(b, "tg:{a}:x"); !errors.Is(err, pipeline.ErrNil) {
		t.Errorf("cluster: %v", err)
	}
	from := c.MasterOf("tg:{a}:x")
	i := slices.IndexFunc(c.Nodes[:3], func(n *redistest.Node) bool { return n != from })
	move := c.Move(c.SlotOf("tg:{a}:x"), c.Nodes[i])
	if err := get(b, "tg:{a}:x"); !errors.Is(err, pipeline.ErrNil) { // ASK: it may have gone already
		t.Errorf("while its slot moves: %v", err)
	}
	move.Finish()
	for _, n := range c.Nodes {
		if entries := n.Server.Client().ACLLog(t.Context(), 10).Val(); len(entries) > 0 {
			t.Errorf("node %s forbade %s", n.Addr(), entries[0].Object)
		}
	}
}
