package governance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// replica is a gate with identities in Redis, and how many waits its Redis has seen.
type replica struct {
	*testing.T
	gate  *Gate
	proxy *redistest.Proxy // nil on the embedded store
}

// rowsRig is a store, a publisher of edits, and as many replicas as asked for.
type rowsRig struct {
	*testing.T
	store     *pipeline.Backend // direct
	publisher *identity.Publisher
	server    *redistest.Server
	replicas  []*replica
}

const rowSecret = "sk-row"

func sumOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// rowsConfig has a model that costs a dollar for 1,000 tokens, and one key of the file.
func rowsConfig() *config.Config {
	cfg := config.Default()
	price := int64(1_000_000_000)
	cfg.Models = []config.Model{{Name: "m", Strategy: "usage", Deployments: []config.Deployment{{
		Name: "d", URL: "http://127.0.0.1:1/v1", Dialect: "openai", Weight: 1, Order: 1, Price: &config.Price{Input: &price, Output: &price},
	}}}}
	cfg.Keys = []config.Key{{ID: "file", SecretSHA256: sumOf("sk-file")}}
	return cfg
}

func newRowsRig(t *testing.T, replicas int, change func(*config.Config), options func(*Options)) *rowsRig {
	t.Helper()
	server := redistest.Start(t)
	store, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	rig := &rowsRig{T: t, store: store, server: server, publisher: &identity.Publisher{Backend: store, Prefix: "tg"}}
	for range replicas {
		proxy := redistest.NewProxy(t, server.Addr())
		backend, err := pipeline.Open(pipeline.Options{URL: proxy.URL(), Deadline: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r := newReplica(t, backend, change, options)
		r.proxy = proxy
		rig.replicas = append(rig.replicas, r)
	}
	return rig
}

func newReplica(t *testing.T, backend *pipeline.Backend, change func(*config.Config), options func(*Options)) *replica {
	t.Helper()
	cfg := rowsConfig()
	if change != nil {
		change(cfg)
	}
	opt := Options{Config: cfg, Counters: backend, Identities: true}
	if options != nil {
		options(&opt)
	}
	gate, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = gate.Close(ctx)
		_ = backend.Close()
	})
	r := &replica{T: t, gate: gate}
	if opt.Identities {
		r.until("the subscription is up", func() bool { return !gate.rows.Deaf() })
	}
	return r
}

// until waits for something that happens by itself.
func (r *replica) until(what string, is func() bool) {
	r.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.Fatalf("never: %s", what)
}

type rowHeaders http.Header

func (h rowHeaders) Values(name string) []string { return h[name] }

func (h rowHeaders) Names() []string {
	var names []string
	for n := range h {
		names = append(names, n)
	}
	return names
}

// outcome is what a request came to.
type outcome struct {
	status int // 0: it was let through
	reason string
	waits  int // for Redis, as the call counts them
	body   string
	call   *Call
}

const rowBody = `{"model":"m","max_tokens":1000,"messages":[{"role":"user","content":"hi"}]}`

// ask sends a request up to the point where it would go upstream; end must be called for one that was let through.
func (r *replica) ask(secret string) outcome {
	return r.request("POST", "/v1/chat/completions", secret, rowBody)
}

func (r *replica) request(method, path, secret, body string) outcome {
	call, reply := r.gate.Begin(Head{Method: method, Path: path, Headers: rowHeaders{"authorization": {"Bearer " + secret}}})
	if reply == nil {
		_, reply = call.Admit(context.Background(), []byte(body))
	}
	o := outcome{call: call}
	if call != nil {
		o.waits = call.trips
	}
	if reply != nil {
		o.status, o.reason, o.body = reply.Status, reply.Details, string(reply.Body)
		if call != nil {
			call.End()
		}
	}
	return o
}

// end ends a request that was let through without anything having happened: nothing is charged.
func (o outcome) end() {
	if o.status == 0 {
		o.call.End()
	}
}

// passes sends a request that must pass within so many waits.
func (r *replica) passes(what string, waits int) {
	r.Helper()
	o := r.ask(rowSecret)
	if o.status != 0 || o.waits != waits {
		r.Errorf("%s: status %d %s after %d waits, want to pass after %d: %s", what, o.status, o.reason, o.waits, waits, o.body)
	}
	o.end()
}

// refused sends a request that must be refused within so many waits.
func (r *replica) refused(what string, status int, reason string, waits int) {
	r.Helper()
	o := r.ask(rowSecret)
	if o.status != status || o.reason != "tollgate_"+reason || o.waits != waits {
		r.Errorf("%s: status %d %s after %d waits, want %d %s after %d: %s", what, o.status, o.reason, o.waits, status, reason, waits, o.body)
	}
	o.end()
}

// settled waits until all that was to be written is.
func (r *replica) settled() {
	r.Helper()
	r.until("deferred writes are answered", func() bool { return r.gate.Pending() == 0 })
}

// rows of one tenant.
type tenant struct {
	org     config.Org
	team    config.Team
	user    config.User
	member  config.TeamMember
	project config.Project
	key     config.Key
}

func acme() tenant {
	return tenant{
		org: config.Org{ID: "acme"}, team: config.Team{ID: "search", Org: "acme"}, user: config.User{ID: "ada"},
		member: config.TeamMember{Team: "search", User: "ada"}, project: config.Project{ID: "rag", Team: "search"},
		key: config.Key{ID: "k", SecretSHA256: sumOf(rowSecret), Team: "search", User: "ada", Project: "rag"},
	}
}

const orgHome = "o:acme"

func (x tenant) parts(revision int64) []*identity.Row {
	return []*identity.Row{
		{Kind: identity.KindTeam, ID: x.team.ID, Revision: revision, Home: orgHome, Data: &x.team},
		{Kind: identity.KindOrg, ID: x.org.ID, Revision: revision, Home: orgHome, Data: &x.org},
		{Kind: identity.KindUser, ID: x.user.ID, Revision: revision, Home: "u:ada", Data: &x.user},
		{Kind: identity.KindMember, ID: "search/ada", Revision: revision, Home: orgHome, Data: &x.member},
		{Kind: identity.KindProject, ID: x.project.ID, Revision: revision, Home: orgHome, Data: &x.project},
	}
}

func (x tenant) keyRow(revision int64) *identity.Row {
	return &identity.Row{
		Kind: identity.KindKey, ID: x.key.ID, Revision: revision, Home: orgHome, Secret: x.key.SecretSHA256, Data: &x.key,
		Parts: x.parts(1),
	}
}

func (rig *rowsRig) put(rows ...*identity.Row) {
	rig.Helper()
	for _, row := range rows {
		if err := rig.publisher.Put(rig.Context(), row); err != nil {
			rig.Fatal(err)
		}
	}
}

// create puts a whole tenant into Redis.
func (rig *rowsRig) create(x tenant) {
	rig.Helper()
	rig.put(append(x.parts(1), x.keyRow(1))...)
}

// silently writes a row's copy and revision as an edit does, but tells nobody.
func (rig *rowsRig) silently(row *identity.Row) {
	rig.Helper()
	body, err := row.Encode()
	if err != nil {
		rig.Fatal(err)
	}
	id := row.ID
	if row.Kind == identity.KindKey {
		id = row.Secret
	}
	c := rig.server.Client()
	if err := c.Set(rig.Context(), "tg:i:"+string(row.Kind)+":"+limit.Safe(id), body, 0).Err(); err != nil {
		rig.Fatal(err)
	}
	if err := c.HSet(rig.Context(), limit.RevisionKey("tg", row.Home, string(row.Kind), row.ID), limit.RevisionField, row.Revision).Err(); err != nil {
		rig.Fatal(err)
	}
}

func usdBudget(dollars int64) config.Limits {
	return config.Limits{Budgets: []config.Budget{{Unit: config.USD, Amount: dollars * 1_000_000_000, Per: config.Lifetime}}}
}

func sum32(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// requestCost is what the 1,000 output tokens of rowBody cost, in nano-dollars: the least that a request reserves.
const requestCost = 1_000_000
