package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is what the Sentinels of StartSentinel call their master.
const MasterName = "counters"

const (
	// sentinelDownAfter is how long a master may be silent before a Sentinel calls it down, in milliseconds. Less makes
	// failovers that nobody asked for on a loaded machine.
	sentinelDownAfter = 1000
	// sentinelFailoverTimeout, in milliseconds: the same master is not failed over again for twice as long.
	sentinelFailoverTimeout = 2000
)

// Sentinel is a master with a replica, watched by three Sentinels, every one a process of its own. Its methods belong to
// the test's goroutine, except Addrs, URL and Client.
type Sentinel struct {
	// Nodes are the two servers with data: the first began as the master.
	Nodes []*Node
	// Sentinels are the three that watch. One that is restarted finds its peers again, but at Redis' own, slower pace.
	Sentinels []*Node
	t         testing.TB
	client    *redis.Client
}

// StartSentinel runs the five until the test ends. When it returns the replica follows the master and each Sentinel knows
// the replica and both other Sentinels, without which a failover would be refused.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	o := chosen(opts)
	s := &Sentinel{t: t}
	for range 2 {
		s.Nodes = append(s.Nodes, newDataNode(t, o))
	}
	bootNodes(t, s.Nodes)
	follow(t, s.Nodes[1].Server, s.Nodes[0].Server, s.Nodes[0].Addr())
	for range 3 {
		s.Sentinels = append(s.Sentinels, s.newSentinel(o))
	}
	bootNodes(t, s.Sentinels)
	s.hurry()
	for _, n := range append(s.Sentinels, s.Nodes...) {
		if n.Proxy != nil {
			n.Proxy.Reset()
		}
	}
	s.client = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: s.Addrs()})
	t.Cleanup(func() {
		// Close fails only for a client that was closed before.
		_ = s.client.Close()
	})
	return s
}

// newSentinel prepares a Sentinel that watches the first node.
func (s *Sentinel) newSentinel(o setup) *Node {
	s.t.Helper()
	var n *Node
	n = newNode(s.t, o.proxied, launch{kind: o.kind, ready: "Sentinel ID is", args: func(server *Server) []string {
		var lines strings.Builder
		fmt.Fprintf(&lines, "port %d\nbind 127.0.0.1\ndir %q\n", server.ports[0], server.dir)
		fmt.Fprintf(&lines, "sentinel monitor %s 127.0.0.1 %s 2\n", MasterName, s.Nodes[0].port())
		fmt.Fprintf(&lines, "sentinel down-after-milliseconds %s %d\n", MasterName, sentinelDownAfter)
		fmt.Fprintf(&lines, "sentinel failover-timeout %s %d\n", MasterName, sentinelFailoverTimeout)
		if n.Proxy != nil {
			fmt.Fprintf(&lines, "sentinel announce-ip 127.0.0.1\nsentinel announce-port %s\n", n.port())
		}
		return []string{server.file("sentinel.conf", lines.String()), "--sentinel"}
	}})
	return n
}

// hurry shortens the times in which the Sentinels find each other and agree, so that a start takes half a second and a
// failover two, and lets them go on soon after a stall of the whole machine. Pings stay at one a second: a replica is no
// candidate when its last INFO is older than five pings, and that is asked for once a second after a master's death.
func (s *Sentinel) hurry() {
	s.t.Helper()
	s.tune("info-period", 1000, "ask-period", 100, "tilt-period", 1000, "publish-period", 100)
	s.waitComplete()
	// Slower again: a Sentinel that has not heard of a failover for four such periods undoes it, and the one that leads it
	// notices only after a second that a replica was promoted.
	s.tune("publish-period", 1000)
}

// tune sets times of the Sentinels, in milliseconds.
func (s *Sentinel) tune(names ...any) {
	s.t.Helper()
	for _, n := range s.Sentinels {
		if err := n.Server.Client().Do(s.t.Context(), append([]any{"SENTINEL", "DEBUG"}, names...)...).Err(); err != nil {
			s.t.Fatalf("SENTINEL DEBUG: %v", err)
		}
	}
}

// waitComplete returns once each Sentinel knows all others and the replica.
func (s *Sentinel) waitComplete() {
	s.t.Helper()
	settle(s.t, func() error {
		for _, n := range s.Sentinels {
			cmd := redis.NewMapStringStringCmd(s.t.Context(), "SENTINEL", "MASTER", MasterName)
			if err := n.Server.Client().Process(s.t.Context(), cmd); err != nil {
				return err
			}
			master := cmd.Val()
			if master["num-slaves"] != "1" || master["num-other-sentinels"] != "2" || master["flags"] != "master" {
				return fmt.Errorf("sentinel %s knows %v", n.Addr(), master)
			}
		}
		return nil
	})
}

// Addrs are the host:port of the Sentinels as clients see them.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, n := range s.Sentinels {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// URL names the Sentinels, the master and database 0: redis+sentinel://host:port,host:port,host:port/counters/0.
func (s *Sentinel) URL() string {
	return "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "/" + MasterName + "/0"
}

// Client is a client of the master, whichever that is, with go-redis' defaults, closed when the test ends. It goes through
// the proxies, if there are any. Every call returns the same one.
func (s *Sentinel) Client() *redis.Client { return s.client }

// Master is the node that the Sentinels name as the master, once they agree on it and it agrees with them.
func (s *Sentinel) Master() *Node {
	s.t.Helper()
	return s.masterOtherThan("")
}

// KillMaster kills the master and returns it. WaitMaster waits for its successor.
func (s *Sentinel) KillMaster() *Node {
	s.t.Helper()
	n := s.Master()
	n.Kill()
	return n
}

// Failover asks for a failover without a cause (SENTINEL FAILOVER) and returns the old master. WaitMaster waits for its
// successor, WaitStable until it has become the replica; what it takes in between is lost.
func (s *Sentinel) Failover() *Node {
	s.t.Helper()
	old := s.Master()
	settle(s.t, func() error {
		// Soon after another failover the replica may not be known to be good yet: it says NOGOODSLAVE, or INPROG.
		return s.Sentinels[0].Server.Client().Do(s.t.Context(), "SENTINEL", "FAILOVER", MasterName).Err()
	})
	return old
}

// WaitMaster returns the master once it is another than old and all Sentinels that run name it.
func (s *Sentinel) WaitMaster(old *Node) *Node {
	s.t.Helper()
	return s.masterOtherThan(old.Addr())
}

// WaitStable returns once the Sentinels agree on a master and the other node, if it runs, follows it. A master that was
// replaced, and runs on or comes back, believes that it still is the master for about four seconds; in earnest it is eight.
func (s *Sentinel) WaitStable() {
	s.t.Helper()
	master := s.Master()
	settle(s.t, func() error {
		for _, n := range s.Nodes {
			if !n.Server.running() {
				continue
			}
			role, err := n.role()
			if err != nil {
				return err
			}
			if n != master && role != "slave" {
				return fmt.Errorf("node %s is a %s", n.Addr(), role)
			}
			if err := n.Server.replicates(s.t.Context()); err != nil {
				return fmt.Errorf("node %s: %w", n.Addr(), err)
			}
		}
		return nil
	})
}

func (s *Sentinel) masterOtherThan(old string) *Node {
	s.t.Helper()
	var found *Node
	settle(s.t, func() error {
		addr, err := s.agreed()
		if err != nil {
			return err
		}
		if addr == old {
			return fmt.Errorf("the master is still %s", addr)
		}
		for _, n := range s.Nodes {
			if n.Addr() == addr {
				found = n
			}
		}
		if found == nil || !found.Server.running() {
			return fmt.Errorf("the master %s does not run", addr)
		}
		role, err := found.role()
		if err == nil && role != "master" {
			err = fmt.Errorf("the master %s is a %s", addr, role)
		}
		return err
	})
	return found
}

// agreed is the master's address as all Sentinels that run name it.
func (s *Sentinel) agreed() (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	var common string
	for _, n := range s.Sentinels {
		if !n.Server.running() {
			continue
		}
		parts, err := n.Server.Client().Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).StringSlice()
		if err != nil {
			return "", fmt.Errorf("sentinel %s: %w", n.Addr(), err)
		}
		if len(parts) != 2 {
			return "", fmt.Errorf("sentinel %s names %q", n.Addr(), parts)
		}
		addr := net.JoinHostPort(parts[0], parts[1])
		if common == "" {
			common = addr
		}
		if addr != common {
			return "", fmt.Errorf("sentinel %s names %s, another %s", n.Addr(), addr, common)
		}
	}
	return common, nil
}
