package limit

import (
	"errors"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// tardy is an admission whose reply comes after its request has given up on it.
type tardy struct {
	*bench
	proxy  *redistest.Proxy
	scopes []*Scope
	demand Demand
	asked  *Admission
}

// onTardy runs a test with an admission that Redis has not answered in time, in one script and in groups. The budgets of
// both scopes hold 100, the request reserves 10.
func onTardy(t *testing.T, test func(*tardy)) {
	t.Helper()
	for name, clustered := range map[string]bool{"one script": false, "groups": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			backend, err := pipeline.Open(pipeline.Options{URL: proxy.URL(), Deadline: 100 * time.Millisecond, KeepLate: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = backend.Close() })
			b := newBench(t, backend, clustered)
			limits := config.Limits{Budgets: []config.Budget{usd(100, config.Day)}, RPM: rate(9)}
			x := &tardy{bench: b, proxy: proxy, scopes: []*Scope{at("a", KindKey, "k", limits), at("b", KindTeam, "t", limits)}}
			x.demand = b.costing(10)
			warm := granted(b, b.reserve(b.costing(1), x.scopes...)) // the hashes are there, the scripts too
			b.settle(warm, Ending{Nano: 1})
			proxy.Stall(true)
			x.asked = b.limiter.Reserve(backend.Batch("late"), Ask{Demand: x.demand, Scopes: x.scopes})
			if _, err := x.asked.Get(t.Context(), b.deferred); !errors.Is(err, pipeline.ErrUnavailable) {
				t.Fatalf("err = %v", err)
			}
			test(x)
		})
	}
}

// goOn lets the request pass without a verdict.
func (x *tardy) goOn() *Grant {
	x.Helper()
	g, f, ok := x.limiter.Local(Ask{Demand: x.demand, Scopes: x.scopes}, Policy{Budgets: "allow", Rates: "allow"}, 1)
	if !ok {
		x.Fatalf("refused by %+v", f)
	}
	x.asked.Adopt(g)
	return g
}

// books waits until both budgets have the values.
func (x *tardy) books(spent, reserved string) {
	x.Helper()
	got := [2]string{}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		all := true
		for i, s := range x.scopes {
			got[i] = x.field(s.keys[0], "uday.s") + " " + x.field(s.keys[0], "uday.r")
			all = all && got[i] == spent+" "+reserved
		}
		if all {
			return
		}
	}
	x.Errorf("spent and reserved are %q, want %s %s", got, spent, reserved)
}

func TestLateGrantIsAdopted(t *testing.T) {
	t.Parallel()
	onTardy(t, func(x *tardy) {
		g := x.goOn()
		x.proxy.Stall(false)
		x.books("1", "10")
		for end := time.Now().Add(10 * time.Second); x.limiter.InFlight() < len(x.asked.groups) && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // the reply is on its way
		}
		if n := x.limiter.InFlight(); n != len(x.asked.groups) {
			t.Errorf("%d leases are renewed, want %d", n, len(x.asked.groups))
		}
		x.settle(g, Ending{Nano: 7, Record: []byte("r")})
		x.books("8", "0")
		if n := x.limiter.InFlight(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// The grant comes when the request is over: it was charged without a lease, and what was reserved comes back.
func TestLateGrantOfWhatIsOver(t *testing.T) {
	t.Parallel()
	onTardy(t, func(x *tardy) {
		g := x.goOn()
		w := x.deferred.Writes()
		g.Settle(w, Ending{Nano: 7, Record: []byte("r")})
		w.Close()
		x.proxy.Stall(false)
		x.books("8", "0")
	})
}

func TestLateGrantOfWhatWasRefused(t *testing.T) {
	t.Parallel()
	onTardy(t, func(x *tardy) {
		x.asked.Abandon()
		x.proxy.Stall(false)
		time.Sleep(50 * time.Millisecond)
		x.books("1", "0")
		for _, s := range x.scopes {
			if w := x.field(s.keys[1], "w"); w == "" || w[len(w)-len(":1:0"):] != ":1:0" {
				t.Errorf("the rate window of %s is %q: the request counts", s.ID, w)
			}
		}
	})
}
