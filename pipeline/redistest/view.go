package redistest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// view is the cluster as one node sees it, by the nodes' ids.
type view map[string]member

// member is one node in a view.
type member struct {
	// follows is the id of a replica's master, "-" for a master.
	follows string
	// slots are what it owns, as ranges: "5" or "0-5460".
	slots []string
}

func (m member) equal(other member) bool {
	return m.follows == other.follows && slices.Equal(m.slots, other.slots)
}

// owner is the id of the master of a slot, "" if nobody is.
func (v view) owner(slot int) string {
	for id, m := range v {
		if slices.ContainsFunc(m.slots, func(r string) bool { return within(slot, r) }) {
			return id
		}
	}
	return ""
}

// within says whether a slot lies in a range.
func within(slot int, slots string) bool {
	first, last, isRange := strings.Cut(slots, "-")
	if !isRange {
		last = first
	}
	from, fromErr := strconv.Atoi(first)
	to, toErr := strconv.Atoi(last)
	return fromErr == nil && toErr == nil && from <= slot && slot <= to
}

// parseView reads the answer to CLUSTER NODES: id, address, flags, master, ping, pong, epoch, link, slots.
func parseView(nodes string) view {
	v := view{}
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		// A slot in brackets is on its way and listed beside the owner's: [93->-id].
		owned := slices.DeleteFunc(fields[8:], func(slots string) bool { return strings.HasPrefix(slots, "[") })
		v[fields[0]] = member{follows: fields[3], slots: owned}
	}
	return v
}

// WaitStable returns once the nodes that run are one working cluster: each says that its state is ok and shows all others
// to its clients, all name the same owners of the slots, every owner runs, and every replica has what its master has. Slots
// on their way do not matter.
func (c *Cluster) WaitStable() {
	c.t.Helper()
	settle(c.t, func() error { _, err := c.agreed(); return err })
}

// OwnerOf is the node that owns a slot, once the nodes that run agree on it.
func (c *Cluster) OwnerOf(slot int) *Node {
	c.t.Helper()
	var owner *Node
	settle(c.t, func() error {
		v, err := c.agreed()
		if err != nil {
			return err
		}
		owner = c.node(v.owner(slot))
		return nil
	})
	return owner
}

// SlotOf is the slot of a key.
func (c *Cluster) SlotOf(key string) int {
	c.t.Helper()
	for _, n := range c.Nodes {
		if !n.Server.running() {
			continue
		}
		slot, err := n.Server.Client().ClusterKeySlot(c.t.Context(), key).Result()
		if err != nil {
			c.t.Fatalf("CLUSTER KEYSLOT: %v", err)
		}
		return int(slot)
	}
	c.t.Fatal("no node runs")
	return 0
}

// node is the one with an id, nil if there is none.
func (c *Cluster) node(id string) *Node {
	if i := slices.IndexFunc(c.Nodes, func(n *Node) bool { return n.id == id }); i >= 0 {
		return c.Nodes[i]
	}
	return nil
}

// agreed is what all nodes that run see, or why they are no working cluster.
func (c *Cluster) agreed() (view, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	var common view
	for _, n := range c.Nodes {
		if !n.Server.running() {
			continue
		}
		v, err := n.sees(ctx)
		if err == nil {
			err = errors.Join(c.dropDead(v), n.shows(ctx, v))
		}
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Addr(), err)
		}
		if common == nil {
			common = v
		}
		if !maps.EqualFunc(common, v, member.equal) {
			return nil, fmt.Errorf("node %s sees %v, another %v", n.Addr(), v, common)
		}
	}
	return common, nil
}

// dropDead takes the nodes that do not run out of a view: what one says of them no other needs to. It fails when one owns
// a slot, or when a node that runs is missing.
func (c *Cluster) dropDead(v view) error {
	running := map[string]bool{}
	for _, n := range c.Nodes {
		if n.Server.running() {
			running[n.id] = true
		}
	}
	for id, m := range v {
		if running[id] {
			continue
		}
		if len(m.slots) > 0 {
			return fmt.Errorf("slots %v belong to %s, which does not run", m.slots, id)
		}
		delete(v, id)
	}
	if len(v) != len(running) {
		return fmt.Errorf("%d nodes run, %d are known", len(running), len(v))
	}
	return nil
}

// sees is the node's view of the cluster, or why it cannot serve in it.
func (n *Node) sees(ctx context.Context) (view, error) {
	client := n.Server.Client()
	state, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return nil, err
	}
	if !strings.Contains(state, "cluster_state:ok") {
		return nil, fmt.Errorf("cluster state is not ok:\n%s", state)
	}
	if err := n.Server.replicates(ctx); err != nil {
		return nil, err
	}
	nodes, err := client.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	return parseView(nodes), nil
}

// shows says which of the nodes in v, those that run, the node hides from clients. It names a replica in CLUSTER SLOTS only
// when it knows its offset.
func (n *Node) shows(ctx context.Context, v view) error {
	slots := redis.NewClusterSlotsCmd(ctx, "CLUSTER", "SLOTS")
	if err := n.Server.Client().Process(ctx, slots); err != nil {
		return err
	}
	shown := map[string]bool{}
	for _, slot := range slots.Val() {
		for _, node := range slot.Nodes {
			shown[node.ID] = true
		}
	}
	for id, m := range v {
		serves := len(m.slots) > 0 || len(v[m.follows].slots) > 0
		if serves && !shown[id] {
			return fmt.Errorf("CLUSTER SLOTS does not name %s", id)
		}
	}
	return nil
}
