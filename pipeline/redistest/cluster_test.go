package redistest_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

func TestClusterBehindProxies(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Proxied, redistest.Args("--maxmemory-policy", "noeviction"))
	var roles []string
	for _, n := range c.Nodes {
		roles = append(roles, n.Role())
	}
	if want := []string{"master", "master", "master", "slave", "slave", "slave"}; !slices.Equal(roles, want) {
		t.Errorf("roles are %q, want %q", roles, want)
	}
	if want := "redis+cluster://" + strings.Join(c.Addrs(), ","); c.URL() != want || len(c.Addrs()) != 6 {
		t.Errorf("URL is %s, want %s", c.URL(), want)
	}
	if got := len(c.Trips()); got != 0 {
		t.Errorf("%d trips before the first command", got)
	}

	owner := c.MasterOf("k")
	if err := c.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		want := []string(nil)
		if n == owner {
			want = []string{"set k v"}
		}
		if got := commands(n.Proxy.Trips()); !slices.Equal(got, want) {
			t.Errorf("trips to %s are %q, want %q", n.Addr(), got, want)
		}
	}
	var topology []string
	for _, n := range c.Nodes {
		topology = append(topology, commands(n.Proxy.Topology())...)
	}
	if !slices.Contains(topology, "cluster slots") {
		t.Errorf("topology is %q, want the client's CLUSTER SLOTS in it", topology)
	}
	c.Reset()
	if got := len(c.Trips()); got != 0 {
		t.Errorf("%d trips after Reset", got)
	}
	announced(t, c, owner)
}

// announced asks for every address that a client may learn. The owner is k's.
func announced(t *testing.T, c *redistest.Cluster, owner *redistest.Node) {
	t.Helper()
	node := c.Nodes[4].Server.Client()
	slots := redis.NewClusterSlotsCmd(t.Context(), "CLUSTER", "SLOTS")
	if err := node.Process(t.Context(), slots); err != nil {
		t.Fatal(err)
	}
	shards, err := node.ClusterShards(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	var inSlots, inShards []string
	for _, slot := range slots.Val() {
		for _, n := range slot.Nodes {
			inSlots = append(inSlots, n.Addr)
		}
	}
	for _, shard := range shards {
		for _, n := range shard.Nodes {
			inShards = append(inShards, net.JoinHostPort(n.IP, fmt.Sprint(n.Port)))
		}
	}
	slices.Sort(inSlots)
	slices.Sort(inShards)
	want := slices.Sorted(slices.Values(c.Addrs()))
	if diff := cmp.Diff(want, inSlots); diff != "" {
		t.Errorf("CLUSTER SLOTS names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, inShards); diff != "" {
		t.Errorf("CLUSTER SHARDS names (-want +got):\n%s", diff)
	}

	stranger := c.Nodes[0]
	if stranger == owner {
		stranger = c.Nodes[1]
	}
	moved := fmt.Sprintf("MOVED %d %s", c.SlotOf("k"), owner.Addr())
	if err := client(t, stranger.Addr()).Get(t.Context(), "k").Err(); err == nil || err.Error() != moved {
		t.Errorf("GET at another node: error is %v, want %s", err, moved)
	}

	// A fault at one node leaves the others alone.
	other := keyOf(t, c, stranger)
	owner.Proxy.CutAfter(isAppend)
	if err := client(t, owner.Addr()).Append(t.Context(), "k", "w").Err(); err == nil {
		t.Error("APPEND with a lost reply has no error")
	}
	if err := client(t, stranger.Addr()).Append(t.Context(), other, "w").Err(); err != nil {
		t.Errorf("APPEND at another node: %v", err)
	}
	if got := get(t, owner.Server.Client(), "k"); got != "vw" {
		t.Errorf("k = %s, want vw: the server had executed it", got)
	}
}

func isAppend(cmd []string) bool { return cmd[0] == "append" }

// keyOf is a key that a node owns.
func keyOf(t *testing.T, c *redistest.Cluster, owner *redistest.Node) string {
	t.Helper()
	for i := range 100 {
		if key := fmt.Sprintf("key-%d", i); c.MasterOf(key) == owner {
			return key
		}
	}
	t.Fatalf("no key of %s", owner.Addr())
	return ""
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	redistest.Kinds(t, func(t *testing.T, kind redistest.Kind) {
		t.Parallel()
		c := redistest.StartCluster(t, redistest.On(kind), redistest.Proxied)
		old := c.MasterOf("k")
		setReplicated(t, old, "k", "v")
		if killed := c.KillMaster("k"); killed != old {
			t.Errorf("%s was killed, want %s", killed.Addr(), old.Addr())
		}
		if conn, err := net.Dial("tcp", old.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a dial to the dead node: %v, %v; want it refused", conn, err)
		}
		c.WaitFailover(old)
		now := c.MasterOf("k")
		if now == old || now.Role() != "master" || !slices.Contains(c.Nodes[3:], now) {
			t.Errorf("the new master is %s, a %s; want one of the replicas", now.Addr(), now.Role())
		}
		if got := get(t, now.Server.Client(), "k"); got != "v" {
			t.Errorf("GET k = %q at the new master, want v", got)
		}
		old.Restart()
		c.WaitStable()
		if role := old.Role(); role != "slave" {
			t.Errorf("the old master came back as a %s", role)
		}
		if got, err := c.Client().Get(t.Context(), "k").Result(); err != nil || got != "v" {
			t.Errorf("GET k by the cluster's client = %q, %v; want v", got, err)
		}
	})
}

func TestClusterFailoverFromAPausedMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	old := c.MasterOf("k")
	old.Pause()
	c.WaitFailover(old)
	now := c.MasterOf("k")
	if now == old {
		t.Fatal("the paused node is still the master")
	}
	set(t, client(t, now.Addr()), "k", "v")
	old.Resume()
	c.WaitStable()
	if role := old.Role(); role != "slave" {
		t.Errorf("the old master is a %s after it has woken", role)
	}
	if err := client(t, old.Addr()).Set(t.Context(), "k", "w", 0).Err(); !redis.HasErrorPrefix(err, "MOVED") {
		t.Errorf("SET at the old master: error is %v, want MOVED", err)
	}
}
