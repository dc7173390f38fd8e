package redistest

import "fmt"

// Move is a slot on its way from one master to another, by the steps that Redis documents. Between Cluster.Move and Finish
// the slot is open for as long as the test wants: the old owner serves the keys that it has and answers ASK for others,
// the new one serves after ASKING only; and of several keys of which some have moved, each answers TRYAGAIN.
type Move struct {
	// Slot is the slot's number.
	Slot int
	// From and To are the old and the new owner.
	From, To *Node
	c        *Cluster
}

// Reshard moves slots to another master, one after the other with all their keys, and returns once all nodes know. All of
// them must belong to from.
func (c *Cluster) Reshard(from, to *Node, slots ...int) {
	c.t.Helper()
	for _, slot := range slots {
		c.move(slot, from, to).finish()
	}
	c.waitOwner(to, slots...)
}

// Move begins to move a slot from its owner to another master, and moves no key yet.
func (c *Cluster) Move(slot int, to *Node) *Move {
	c.t.Helper()
	return c.move(slot, c.OwnerOf(slot), to)
}

func (c *Cluster) move(slot int, from, to *Node) *Move {
	c.t.Helper()
	m := &Move{Slot: slot, From: from, To: to, c: c}
	// The target first: an owner that migrates sends clients there at once.
	m.set(to, "IMPORTING", from.id)
	m.set(from, "MIGRATING", to.id)
	return m
}

// Migrate moves keys of the slot. One that is not there is no error.
func (m *Move) Migrate(keys ...string) {
	m.c.t.Helper()
	if len(keys) == 0 {
		return
	}
	// Past the proxies, so that it is neither counted nor disturbed.
	to := m.To.Server
	args := []any{"MIGRATE", "127.0.0.1", to.ports[0], "", 0, 5000, "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	if err := m.From.Server.Client().Do(m.c.t.Context(), args...).Err(); err != nil {
		m.c.t.Fatalf("MIGRATE from %s to %s: %v", m.From.Addr(), m.To.Addr(), err)
	}
}

// Keys are the keys of the slot that the old owner still has, at most n.
func (m *Move) Keys(n int) []string {
	m.c.t.Helper()
	keys, err := m.From.Server.Client().ClusterGetKeysInSlot(m.c.t.Context(), m.Slot, n).Result()
	if err != nil {
		m.c.t.Fatalf("CLUSTER GETKEYSINSLOT: %v", err)
	}
	return keys
}

// Finish moves the keys that are left, gives the slot to its new owner and returns once all nodes know.
func (m *Move) Finish() {
	m.c.t.Helper()
	m.finish()
	m.c.waitOwner(m.To, m.Slot)
}

// finish does not wait: the other nodes learn of the new owner by gossip.
func (m *Move) finish() {
	m.c.t.Helper()
	for {
		keys := m.Keys(100)
		if len(keys) == 0 {
			break
		}
		m.Migrate(keys...)
	}
	// The new owner first: the old one, told before, would send clients to a node that sends them back.
	m.set(m.To, "NODE", m.To.id)
	m.set(m.From, "NODE", m.To.id)
}

// set sends CLUSTER SETSLOT.
func (m *Move) set(n *Node, state, id string) {
	m.c.t.Helper()
	if err := n.Server.Client().Do(m.c.t.Context(), "CLUSTER", "SETSLOT", m.Slot, state, id).Err(); err != nil {
		m.c.t.Fatalf("CLUSTER SETSLOT %d %s %s at %s: %v", m.Slot, state, id, n.Addr(), err)
	}
}

// waitOwner returns once the nodes agree that the slots belong to a node.
func (c *Cluster) waitOwner(owner *Node, slots ...int) {
	c.t.Helper()
	settle(c.t, func() error {
		v, err := c.agreed()
		if err != nil {
			return err
		}
		for _, slot := range slots {
			if id := v.owner(slot); id != owner.id {
				return fmt.Errorf("slot %d belongs to %q", slot, id)
			}
		}
		return nil
	})
}
