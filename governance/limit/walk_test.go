package limit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/usage"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// walker runs requests at random through the scripts and keeps the right books beside them.
type walker struct {
	*bench
	rnd    *rand.Rand
	scopes []*Scope
	writer string
	seq    int64
	open   []*walked // granted and not settled
	spent  map[spentOn]int64
	steps  int

	granted, refused int // admissions
}

// spentOn is a counter of a scope in one period.
type spentOn struct {
	scope         *Scope
	field, period string
}

// walked is a request of the walk.
type walked struct {
	*Grant
	known   bool  // the reply arrived; else the process believes that it was refused
	renewed int64 // when its leases were last made to live, ms
}

const walkAmount = 200_000 // nano-dollars an hour

// Replies are lost, flushes are repeated, leases run out before their settlement, clocks lag, periods end, requests are
// voided, leases are renewed: the books are right after every step.
func TestRandomWalk(t *testing.T) {
	walks := 30 // a kind of store, once with one script for all and once with groups
	if testing.Short() {
		walks = 10
	}
	onStores(t, func(b *bench) { walk(b, walks, 1) }, false)
	onClusters(t, func(b *bench) { walk(b, walks, 2) })
}

// walk takes so many walks over scopes at so many homes.
func walk(b *bench, walks, homes int) {
	granted, refused := 0, 0
	for seed := range walks {
		w := newWalker(b, seed, homes)
		for range 400 {
			w.step()
			if b.Failed() {
				b.Fatalf("walk %d, step %d", seed, w.steps)
			}
		}
		granted, refused = granted+w.granted, refused+w.refused
	}
	if granted == 0 || refused == 0 {
		b.Errorf("%d admissions were granted and %d refused: the walks prove nothing", granted, refused)
	}
}

// newWalker makes a walker over three scopes, whose limits differ so that they do not refuse together. Of three homes each
// has one, of two the first two share one.
func newWalker(b *bench, seed, homes int) *walker {
	w := &walker{bench: b, rnd: rand.New(rand.NewPCG(uint64(seed), 1)), spent: map[spentOn]int64{}, writer: fmt.Sprint("w", seed)}
	for i, kind := range []string{KindKey, KindTeam, "user"} {
		limits := config.Limits{
			Budgets: []config.Budget{usd(walkAmount, config.Hour), {Unit: config.Requests, Amount: 1 << 40, Per: config.Minute}},
			RPM:     rate(1 << 40), TPM: rate(1 << 40), Parallel: rate(int64(50 - 22*i)),
		}
		home := fmt.Sprintf("h%d-%d", max(0, i+homes-3), seed)
		w.scopes = append(w.scopes, NewScope("tg", Owner{Kind: kind, ID: fmt.Sprint(kind, seed), Home: home, Limits: limits, Zone: time.UTC}))
	}
	b.ms = start + 1_000_000
	b.limiter.pause = func(time.Duration) {} // nobody else gives anything back meanwhile
	return w
}

func (w *walker) step() {
	w.steps++
	w.ms += w.rnd.Int64N(4_000)
	w.lag = w.rnd.Int64N(3_000)
	switch n := w.rnd.IntN(100); {
	case n < 55:
		w.admit()
	case n < 90:
		w.finish()
	case n < 97:
		w.renewAll()
	default:
		w.ms += 40_000 // frozen: every lease runs out
	}
	w.check()
}

func (w *walker) admit() {
	d := Demand{
		ID: fmt.Sprintf("q%d", w.steps), Note: "k", Fixed: 100, PerMNano: 10_000_000, Input: 10, Want: 1000, Least: 256, Choices: 1,
	}
	// Most requests have all three scopes; some lack one or two, as other people's requests do.
	scopes := slices.Clone(w.scopes)
	w.rnd.Shuffle(len(scopes), func(i, j int) { scopes[i], scopes[j] = scopes[j], scopes[i] })
	v := w.reserve(d, scopes[:1+min(w.rnd.IntN(6), 2)]...)
	w.flushed() // what was released
	if v.Grant == nil {
		w.refused++
		return
	}
	w.granted++
	w.open = append(w.open, &walked{Grant: v.Grant, known: w.rnd.IntN(20) > 0, renewed: w.ms})
	for _, u := range v.Grant.Uses {
		if b := u.Budgets[0]; b.Spent+b.Reserved > walkAmount {
			w.Errorf("over: %s %s spent %d, reserved %d", u.Scope.Kind, u.Scope.ID, b.Spent, b.Reserved)
		}
	}
}

// finish settles a request, once or more often; one whose reply was lost is forgotten.
func (w *walker) finish() {
	if len(w.open) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.open))
	q := w.open[i]
	w.open = append(w.open[:i], w.open[i+1:]...)
	if !q.known {
		return
	}
	e := Ending{Nano: w.rnd.Int64N(q.Reserved + 1), Usage: usage.Usage{Input: 10, Output: w.rnd.Int64N(1000)}, Void: w.rnd.IntN(10) == 0}
	w.seq++
	for range 1 + w.rnd.IntN(3) { // a lost reply makes the flusher repeat
		w.settleOnce(q.Grant, e)
	}
	if e.Void {
		return
	}
	for i, s := range q.scopes {
		for j, b := range s.Budgets {
			w.spent[spentOn{s, b.field, q.periods[i][j]}] += charge(b.Unit, e, false)
		}
	}
}

// settleOnce calls the settlement scripts as the flusher would, under a number that stays.
func (w *walker) settleOnce(g *Grant, e Ending) {
	w.limiter.holder.release(g)
	for i := range g.portions {
		keys, args := g.settlement(w.writer, &g.portions[i], e, "")
		args = append([]any{w.seq, ""}, args...)
		if _, err := pipeline.Eval(w.backend.Batch("walk"), "walk", pipeline.Raw, settleScript, keys, args...).Get(w.Context()); err != nil {
			w.Fatal(err)
		}
	}
}

// renewAll renews what the process knows of. Not once a second settlement could have come in between: the queue keeps
// the order.
func (w *walker) renewAll() {
	for _, q := range w.open {
		if !q.known {
			continue
		}
		ws := w.deferred.Writes()
		q.renew(ws)
		ws.Close()
		q.renewed = w.ms
	}
	w.flushed()
}

// check compares the counters with the books. What is reserved is the sum of the leases that Redis holds, and none of
// those that run is missing.
func (w *walker) check() {
	w.Helper()
	var read []pipeline.Handle[any]
	batch := w.backend.Batch("walk")
	for _, s := range w.scopes {
		read = append(read, pipeline.Declare(batch, "walk", pipeline.Raw, "HGETALL", s.keys[0]))
		read = append(read, pipeline.Declare(batch, "walk", pipeline.Raw, "ZRANGE", s.keys[2], "0", "-1"))
	}
	for i, s := range w.scopes {
		state := w.fields(read[2*i])
		held := map[[2]string]int64{}
		members := w.list(read[2*i+1])
		for _, m := range members {
			for f, amount := range amounts(m) {
				held[f] += amount
			}
		}
		for _, b := range s.Budgets {
			for _, c := range [][3]string{{"p", "s", "r"}, {"P", "S", "R"}} {
				period := state[b.field+"."+c[0]]
				if period == "" {
					continue
				}
				id := [2]string{b.field, period}
				if got, want := state[b.field+"."+c[1]], fmt.Sprint(w.spent[spentOn{s, b.field, period}]); got != want {
					w.Errorf("%s %s: spent %s, want %s", s.Kind, id, got, want)
				}
				if got, want := state[b.field+"."+c[2]], fmt.Sprint(held[id]); got != want {
					w.Errorf("%s %s: reserved %s, its leases hold %s", s.Kind, id, got, want)
				}
			}
		}
		for _, q := range w.open {
			i := slices.Index(q.scopes, s)
			if i >= 0 && q.renewed+leaseTime.Milliseconds() > w.ms && !slices.Contains(members, q.members[i]) {
				w.Errorf("%s: the lease of a running request is gone", s.Kind)
			}
		}
	}
}

// fields takes the reply to HGETALL.
func (b *bench) fields(h pipeline.Handle[any]) map[string]string {
	b.Helper()
	list := b.list(h)
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

// list takes a reply of several strings.
func (b *bench) list(h pipeline.Handle[any]) []string {
	b.Helper()
	v, err := h.Get(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	list := make([]string, 0, reader{v}.len())
	for i := range (reader{v}).len() {
		list = append(list, reader{v}.list(i).str())
	}
	return list
}

// amounts reads a lease member: what it holds, by counter field and period.
func amounts(member string) map[[2]string]int64 {
	m := map[[2]string]int64{}
	for _, part := range strings.Split(member, "|")[2:] { // behind the id and the note
		c := strings.Split(part, ":")
		n, _ := strconv.ParseInt(c[2], 10, 64)
		m[[2]string{c[0], c[1]}] += n
	}
	return m
}
