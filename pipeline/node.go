package pipeline

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// settings are what the nodes of a backend have in common.
type settings struct {
	deadline time.Duration
	maxValue int // bytes
	dialect  int
	eval     bool
	keepLate bool
	tracer   *Tracer
	connect  func(addr string) *redis.Client
	trouble  func() // a server did not answer; nil when nothing follows from it
}

// node is one server: its connections, its breaker, the trips under way to it and the batches that wait for a turn.
type node struct {
	*settings
	addr    string
	client  atomic.Pointer[redis.Client]
	changed atomic.Int64 // when the connections were last replaced, in unix nanoseconds
	breaker breaker
	merger  merger
	late    atomic.Int32 // trips whose callers have gone

	slowUntil atomic.Int64 // in unix nanoseconds
	pace      atomic.Int64 // how long trips take, in nanoseconds
	unused    time.Time    // since when no slot is its; guarded by the cluster
}

func newNode(s *settings, addr string) *node {
	n := &node{settings: s, addr: addr, breaker: breaker{threshold: 3, pause: 250 * time.Millisecond}}
	n.client.Store(s.connect(addr))
	return n
}

func (n *node) close() error { return n.client.Load().Close() }

// report tells the breaker how a trip ended.
func (n *node) report(answered bool) {
	n.breaker.report(answered, time.Now())
	if !answered {
		n.inTrouble()
	}
}

func (n *node) inTrouble() {
	if n.trouble != nil {
		n.trouble()
	}
}

// exec sends commands as one pipeline. The commands' own errors are the result.
func (n *node) exec(ctx context.Context, cmds []redis.Cmder) {
	p := n.client.Load().Pipeline()
	for _, c := range cmds {
		_ = p.Process(ctx, c) // queues; a pipeline returns no error here
	}
	if _, err := p.Exec(ctx); err != nil { // the first error of all says nothing about any one of them
		notSetUp(cmds, err)
	}
	n.judge(cmds)
}

// notSetUp gives commands their error that went nowhere because the server refused to set the connection up: a wrong
// password, a database that is not there. go-redis takes that for a reply, and leaves them without any.
func notSetUp(cmds []redis.Cmder, err error) {
	for _, c := range cmds {
		if c.Err() != nil {
			return
		}
	}
	for _, c := range cmds {
		c.SetErr(&setUpError{err})
	}
}

// How long old connections are kept for the trips they carry, and how often they are replaced at most.
const (
	oldConnections = 10 * time.Second
	renewPause     = 500 * time.Millisecond
)

// judge replaces the connections of a server that says that it is not the master any more, or not ready: the address may
// lead to another server by now, and those connections would stay with this one.
func (n *node) judge(cmds []redis.Cmder) {
	for _, c := range cmds {
		if err := c.Err(); err != nil && wrongServer(err) {
			n.reconnect()
			return
		}
	}
}

func (n *node) reconnect() {
	now, last := time.Now().UnixNano(), n.changed.Load()
	if now-last < int64(renewPause) || !n.changed.CompareAndSwap(last, now) {
		return
	}
	n.replace()
}

// replace makes new connections for the trips to come.
func (n *node) replace() {
	old := n.client.Swap(n.connect(n.addr))
	time.AfterFunc(oldConnections, func() { _ = old.Close() })
}
