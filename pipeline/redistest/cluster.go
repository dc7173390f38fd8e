package redistest

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// clusterNodeTimeout is how long a node may be silent before its peers call it failed, in milliseconds. Redis' own default
// of 15 s makes a test of a failover as long; much less than a second makes failovers that nobody asked for on a loaded
// machine, since nodes ping each other twice within it.
const clusterNodeTimeout = 1000

// Cluster is a Redis Cluster of three masters with a replica each, every node a process of its own. Its methods belong to
// the test's goroutine, except Addrs, URL and Client.
type Cluster struct {
	// Nodes are the six nodes: those that began as masters, then those that began as replicas.
	Nodes  []*Node
	t      testing.TB
	client *redis.ClusterClient
}

// StartCluster runs a cluster until the test ends; redis-cli makes it. It takes two seconds, the time that a master of an
// unknown past waits before it takes writes. All is done when it returns: every node knows every slot's owner, every
// replica follows its master, and the proxies have counted nothing.
func StartCluster(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	o := chosen(opts)
	c := &Cluster{t: t}
	for range 6 {
		c.Nodes = append(c.Nodes, newClusterNode(t, o))
	}
	bootNodes(t, c.Nodes)
	c.create()
	c.replicateSomething()
	c.WaitStable()
	c.Reset()
	c.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() {
		// Close fails only for a client that was closed before.
		_ = c.client.Close()
	})
	return c
}

// newClusterNode prepares a server with a port for its peers that the kernel chose: the default, the port plus 10000, may
// not exist.
func newClusterNode(t testing.TB, o setup) *Node {
	t.Helper()
	var n *Node
	n = newNode(t, o.proxied, launch{kind: o.kind, ports: 2, args: func(s *Server) []string {
		bus := strconv.Itoa(s.ports[1])
		args := append(s.defaults(), "--cluster-enabled", "yes", "--cluster-port", bus,
			"--cluster-node-timeout", strconv.Itoa(clusterNodeTimeout),
			// A replica stands for election however long ago it heard of its master: tests hold links up.
			"--cluster-replica-validity-factor", "0",
			// Replicas stay with their masters, also when one gives all of its slots away.
			"--cluster-allow-replica-migration", "no",
			"--repl-diskless-sync-delay", "0")
		if n.Proxy != nil {
			args = append(args, "--cluster-announce-port", n.port(), "--cluster-announce-bus-port", bus)
		}
		return append(args, o.args...)
	}})
	return n
}

// create makes one cluster of the nodes.
func (c *Cluster) create() {
	c.t.Helper()
	args := []string{"--cluster", "create"}
	for _, n := range c.Nodes {
		args = append(args, n.Server.Addr()+"@"+strconv.Itoa(n.Server.ports[1]))
	}
	args = append(args, "--cluster-replicas", "1", "--cluster-yes")
	ctx, cancel := context.WithTimeout(c.t.Context(), stableTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "redis-cli", args...).CombinedOutput(); err != nil {
		c.t.Fatalf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, n := range c.Nodes {
		id, err := n.Server.Client().ClusterMyID(ctx).Result()
		if err != nil {
			c.t.Fatalf("CLUSTER MYID: %v", err)
		}
		n.id = id
	}
}

// replicateSomething gives each master a replication offset that is not zero: a replica whose peers know of none is not
// named by CLUSTER SLOTS. A master would ping its replicas in ten seconds.
func (c *Cluster) replicateSomething() {
	c.t.Helper()
	for _, n := range c.Nodes[:3] {
		settle(c.t, func() error {
			info, err := n.Server.Client().Info(c.t.Context(), "replication").Result()
			if err == nil && !strings.Contains(info, "connected_slaves:1\r\n") {
				err = fmt.Errorf("master %s has no replica:\n%s", n.Addr(), info)
			}
			return err
		})
		if err := n.Server.Client().FlushAll(c.t.Context()).Err(); err != nil {
			c.t.Fatalf("FLUSHALL: %v", err)
		}
	}
}

// Addrs are the host:port of all nodes as clients see them.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// URL is the cluster's address, redis+cluster://host:port,host:port,... with all nodes as clients see them.
func (c *Cluster) URL() string { return "redis+cluster://" + strings.Join(c.Addrs(), ",") }

// Client is a client of the cluster with go-redis' defaults, closed when the test ends. It goes through the proxies, if
// there are any, and is counted there. Every call returns the same one.
func (c *Cluster) Client() *redis.ClusterClient { return c.client }

// Reset makes the proxies of all nodes forget their trips; see Proxy.Reset.
func (c *Cluster) Reset() {
	for _, n := range c.Nodes {
		if n.Proxy != nil {
			n.Proxy.Reset()
		}
	}
}

// Trips are the round trips to all nodes in the order they began; none without Proxied.
func (c *Cluster) Trips() []tripcount.Trip {
	var trips []tripcount.Trip
	for _, n := range c.Nodes {
		if n.Proxy != nil {
			trips = append(trips, n.Proxy.Trips()...)
		}
	}
	slices.SortStableFunc(trips, func(a, b tripcount.Trip) int { return a.At.Compare(b.At) })
	return trips
}

// MasterOf is the node that owns a key's slot, as the nodes that run see it.
func (c *Cluster) MasterOf(key string) *Node {
	c.t.Helper()
	return c.OwnerOf(c.SlotOf(key))
}

// KillMaster kills the node that owns a key's slot and returns it. WaitFailover waits for its successor.
func (c *Cluster) KillMaster(key string) *Node {
	c.t.Helper()
	n := c.MasterOf(key)
	n.Kill()
	return n
}

// WaitFailover returns once the nodes that run agree that old, which was killed or paused, owns no slot any more; its
// replica does. It takes about two seconds from the death.
func (c *Cluster) WaitFailover(old *Node) {
	c.t.Helper()
	if old.Server.running() {
		c.t.Fatalf("wait for the failover of %s: it runs", old.Addr())
	}
	c.WaitStable()
}
