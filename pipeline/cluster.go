package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// cluster knows which server of a Redis Cluster has which slot. It learns that from the servers: all of it when there is
// reason to (the start, a server that does not answer, no slot map), one slot at a time from MOVED.
type cluster struct {
	settings *settings
	seeds    []string
	slots    [slots]atomic.Pointer[node]
	epoch    atomic.Int64 // counts the changes of slots

	mu       sync.Mutex
	nodes    map[string]*node
	learning chan struct{} // closed when the refresh under way is over; nil: none is
	learned  time.Time     // when the last one began
	closed   bool
}

// Times of learning where the slots are.
const (
	// learnPause is how soon after one refresh the next may begin.
	learnPause = 100 * time.Millisecond
	// learnTimeout bounds the question to one server.
	learnTimeout = 500 * time.Millisecond
	// unusedLife is how long the connections to a server are kept that has no slot.
	unusedLife = 30 * time.Second
	// unstablePause is how long a command waits that the cluster cannot run just now: its slot is on its way, or has no master.
	unstablePause = 5 * time.Millisecond
	// awayPause is how long it waits when its master refused the connection: another may have the slot by then.
	awayPause = 20 * time.Millisecond
)

func newCluster(s *settings, seeds []string) *cluster {
	c := &cluster{settings: s, seeds: seeds, nodes: map[string]*node{}}
	s.trouble = func() { c.learn() }
	return c
}

var errNoNodes = errors.New("no server of the cluster has said where its slots are")

// node is the server of a slot; nil when none is known and none could be found within the deadline.
func (c *cluster) node(ctx context.Context, slot uint16) *node {
	if n := c.slots[slot].Load(); n != nil {
		return n
	}
	ctx, cancel := context.WithTimeout(ctx, c.settings.deadline)
	defer cancel()
	select {
	case <-c.learn():
	case <-ctx.Done():
	}
	return c.known(slot)
}

// known is the server of a slot, or else any that may know it; nil when nothing is known.
func (c *cluster) known(slot uint16) *node {
	if n := c.slots[slot].Load(); n != nil {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		return n
	}
	return nil
}

// learn begins to learn where the slots are, unless it was done just now. The channel is closed when that is over.
func (c *cluster) learn() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.learning != nil {
		return c.learning
	}
	done := make(chan struct{})
	if c.closed || time.Since(c.learned) < learnPause {
		close(done)
		return done
	}
	c.learned, c.learning = time.Now(), done
	go func() {
		c.refresh()
		c.mu.Lock()
		c.learning = nil
		c.mu.Unlock()
		close(done)
	}()
	return done
}

// refresh asks one server after the other until one tells.
func (c *cluster) refresh() {
	for _, n := range c.candidates() {
		ctx, cancel := context.WithTimeout(context.Background(), learnTimeout)
		ask := redis.NewClusterSlotsCmd(ctx, "CLUSTER", "SLOTS") // what Redis 7 has in its place older servers lack
		err := n.client.Load().Process(ctx, ask)
		cancel()
		if ranges := ask.Val(); err == nil && len(ranges) > 0 {
			c.apply(n, ranges)
			return
		}
	}
}

// candidates are the servers that may know where the slots are: those that answered lately first.
func (c *cluster) candidates() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, addr := range c.seeds {
		c.add(addr)
	}
	var up, down []*node
	for _, n := range c.nodes {
		if n.breaker.failures.Load() > 0 {
			down = append(down, n)
		} else {
			up = append(up, n)
		}
	}
	rand.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
	return append(up, down...)
}

// add makes a server known. The lock is held.
func (c *cluster) add(addr string) *node {
	n := c.nodes[addr]
	if n == nil {
		n = newNode(c.settings, addr)
		c.nodes[addr] = n
	}
	return n
}

// apply takes over what a server told.
func (c *cluster) apply(from *node, ranges []redis.ClusterSlot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	used := map[*node]bool{}
	changed := false
	for _, r := range ranges {
		if len(r.Nodes) == 0 || r.Start < 0 || r.End >= slots {
			continue
		}
		n := c.add(from.neighbour(r.Nodes[0].Addr)) // the master stands first
		used[n] = true
		for s := r.Start; s <= r.End; s++ {
			changed = c.slots[s].Swap(n) != n || changed
		}
	}
	if changed {
		c.epoch.Add(1)
	}
	now := time.Now()
	for addr, n := range c.nodes {
		switch {
		case used[n] || slices.Contains(c.seeds, addr):
			n.unused = time.Time{}
		case n.unused.IsZero():
			n.unused = now
		case now.Sub(n.unused) > unusedLife:
			delete(c.nodes, addr)
			_ = n.close()
		}
	}
}

// at is the server at an address.
func (c *cluster) at(addr string) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.add(addr)
}

// neighbour is the address of another server as this one tells it. A host that is left out, or not known, is its own; an
// IPv6 address comes without brackets.
func (n *node) neighbour(addr string) string {
	if i := strings.LastIndexByte(addr, ':'); i > 0 && net.ParseIP(addr[:i]) != nil {
		return net.JoinHostPort(addr[:i], addr[i+1:])
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" && host != "?" {
		return addr
	}
	own, _, _ := net.SplitHostPort(n.addr)
	return net.JoinHostPort(own, port)
}

// redirect says where a command goes next that was refused, unexecuted, with err.
func (c *cluster) redirect(slot uint16, err error) way {
	at := c.known(slot)
	switch kind, addr := moved(err); kind {
	case "MOVED":
		n := c.at(at.neighbour(addr))
		if c.slots[slot].Swap(n) != n {
			c.epoch.Add(1)
		}
		c.learn() // one slot that moved is seldom alone
		return way{to: n}
	case "ASK":
		return way{to: c.at(at.neighbour(addr)), asking: true}
	}
	switch {
	case isNoScript(err):
		return way{to: at}
	case hasPrefix(err, "TRYAGAIN "):
		return way{pause: unstablePause, open: true}
	default: // it has no master at the moment, or not this one
		c.learn()
		return way{pause: awayPause}
	}
}

// moved reads "MOVED 3999 127.0.0.1:6381" and its like.
func moved(err error) (kind, addr string) {
	if !isReply(err) {
		return "", ""
	}
	words := strings.Fields(err.Error())
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return "", ""
	}
	if _, err := strconv.ParseUint(words[1], 10, 14); err != nil {
		return "", ""
	}
	return words[0], words[2]
}

// masters are the servers that have slots, asked for if need be.
func (c *cluster) masters(ctx context.Context) []*node {
	c.node(ctx, 0)
	return c.inUse()
}

// inUse are the servers that are known to have slots.
func (c *cluster) inUse() []*node {
	var list []*node
	var last *node
	for i := range c.slots {
		if n := c.slots[i].Load(); n != nil && n != last && !slices.Contains(list, n) {
			list = append(list, n)
			last = n
		}
	}
	return list
}

func (c *cluster) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}
