package redistest_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

func TestSentinelReplacesADeadMaster(t *testing.T) {
	t.Parallel()
	redistest.Kinds(t, func(t *testing.T, kind redistest.Kind) {
		t.Parallel()
		s := redistest.StartSentinel(t, redistest.On(kind))
		if s.Master() != s.Nodes[0] || s.Nodes[1].Role() != "slave" {
			t.Errorf("the master is %s, the other a %s", s.Master().Addr(), s.Nodes[1].Role())
		}
		setReplicated(t, s.Nodes[0], "k", "v")
		old := s.KillMaster()
		now := s.WaitMaster(old)
		if old != s.Nodes[0] || now != s.Nodes[1] {
			t.Errorf("failed over from %s to %s", old.Addr(), now.Addr())
		}
		if got := get(t, s.Client(), "k"); got != "v" {
			t.Errorf("GET k = %q by the client, want v", got)
		}
	})
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	setReplicated(t, s.Nodes[0], "k", "v")
	old := s.Failover()
	now := s.WaitMaster(old)
	if old != s.Nodes[0] || now != s.Nodes[1] {
		t.Errorf("failed over from %s to %s", old.Addr(), now.Addr())
	}
	s.WaitStable()
	if role := old.Role(); role != "slave" {
		t.Errorf("the old master is a %s", role)
	}
	old.Restart()
	s.WaitStable()
	if got := get(t, old.Server.Client(), "k"); got != "v" || old.Role() != "slave" {
		t.Errorf("GET k = %q at a %s that came back, want v at a slave", got, old.Role())
	}
}

// setReplicated sets a key at a node and returns once the node's replica has it.
func setReplicated(t *testing.T, n *redistest.Node, key, value string) {
	t.Helper()
	c := client(t, n.Server.Addr()) // of one connection: WAIT is for what was written on it
	set(t, c, key, value)
	if n, err := c.Wait(t.Context(), 1, time.Minute).Result(); err != nil || n != 1 {
		t.Fatalf("WAIT = %d, %v; want 1 replica", n, err)
	}
}

func TestSentinelBehindProxies(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, redistest.Proxied)
	if want := "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "/counters/0"; s.URL() != want || len(s.Addrs()) != 3 {
		t.Errorf("URL is %s, want %s", s.URL(), want)
	}
	c := client(t, s.Sentinels[0].Proxy.Addr())
	addr, err := c.Do(t.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.MasterName).StringSlice()
	if err != nil || len(addr) != 2 {
		t.Fatalf("GET-MASTER-ADDR-BY-NAME = %q, %v", addr, err)
	}
	if got := net.JoinHostPort(addr[0], addr[1]); got != s.Nodes[0].Proxy.Addr() {
		t.Errorf("the Sentinel names %s, want the proxy %s", got, s.Nodes[0].Proxy.Addr())
	}
	peers := redis.NewSliceCmd(t.Context(), "SENTINEL", "SENTINELS", redistest.MasterName)
	if err := c.Process(t.Context(), peers); err != nil || len(peers.Val()) != 2 {
		t.Errorf("%d other Sentinels, error %v", len(peers.Val()), err)
	}
	set(t, client(t, s.Nodes[0].Addr()), "k", "v")

	// Pings of Sentinels and replication pass the same proxies all the time, and are neither trips nor noise.
	for _, n := range append(s.Nodes, s.Sentinels...) {
		if !n.Proxy.WaitQuiet(300 * time.Millisecond) {
			t.Errorf("the proxy of %s is never quiet", n.Addr())
		}
	}
	if got := commands(s.Nodes[0].Proxy.Trips()); !cmp.Equal(got, []string{"set k v"}) {
		t.Errorf("trips to the master are %q", got)
	}
	if got := commands(s.Nodes[1].Proxy.Trips()); len(got) != 0 {
		t.Errorf("trips to the replica are %q", got)
	}
	want := []string{"SENTINEL GET-MASTER-ADDR-BY-NAME counters", "SENTINEL SENTINELS counters"}
	if diff := cmp.Diff(want, commands(s.Sentinels[0].Proxy.Topology())); diff != "" {
		t.Errorf("topology (-want +got):\n%s", diff)
	}
	if got := commands(s.Sentinels[0].Proxy.Trips()); len(got) != 0 {
		t.Errorf("trips to a Sentinel are %q", got)
	}

	// What clients are told after a failover is a proxy too.
	if now := s.WaitMaster(s.KillMaster()); now != s.Nodes[1] {
		t.Errorf("the new master is %s, want %s", now.Addr(), s.Nodes[1].Addr())
	}
}
