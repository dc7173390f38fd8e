package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bounds of merging. A few trips under way keep the server busy while the next are gathered; more would only queue in
// it. A trip stays small enough that a server which is merely busy answers within the deadline.
const (
	maxSenders = 4
	maxMerged  = 64 // batches a trip
)

// merger lets the batches of concurrent requests share trips. A lone caller sends its own batch on its own goroutine, as
// if there were no merger; callers that arrive while maxSenders trips are under way gather, and the next sender, itself one
// of them, takes them all along.
//
// So the deadline bounds the wait for the server, not the wait for a turn: a burst that the server works off is late, but
// served, and a server that does not answer fails the trips under way and, by the breaker, all that wait.
type merger struct {
	mu      sync.Mutex
	senders int
	waiting []*share // the head is the next sender
}

// share is one batch's part of a trip.
type share struct {
	kind   Kind
	caller string
	list   []*declared
	lead   chan bool // true: send the next trip; false: your part has been sent and answered
}

// run sends one batch, alone or with others, and returns when each of its commands has a reply or an error.
func (b *Backend) run(ctx context.Context, kind Kind, caller string, list []*declared) {
	s := &share{kind: kind, caller: caller, list: list}
	m := &b.merger
	m.mu.Lock()
	if m.senders >= maxSenders {
		s.lead = make(chan bool, 1)
		m.waiting = append(m.waiting, s)
		m.mu.Unlock()
		if !<-s.lead {
			return
		}
		m.mu.Lock()
		others := min(len(m.waiting), maxMerged-1)
		group := append([]*share{s}, m.waiting[:others]...)
		m.waiting = append(m.waiting[:0], m.waiting[others:]...)
		m.mu.Unlock()
		b.sendMerged(ctx, group)
		for _, other := range group[1:] {
			other.lead <- false
		}
	} else {
		m.senders++
		m.mu.Unlock()
		b.sendMerged(ctx, []*share{s})
	}
	m.mu.Lock()
	if len(m.waiting) > 0 {
		// It takes this sender's place, and stops waiting at once: a second sender that ends before it runs must not give
		// it another place, which nobody would use.
		next := m.waiting[0]
		m.waiting = append(m.waiting[:0], m.waiting[1:]...)
		next.lead <- true
	} else {
		m.senders--
	}
	m.mu.Unlock()
}

// sendMerged sends the batches of a group as one pipeline, within the deadline.
func (b *Backend) sendMerged(ctx context.Context, group []*share) {
	n := 0
	for _, s := range group {
		n += len(s.list)
	}
	owners, cmds := make([]string, 0, n), make([]redis.Cmder, 0, n)
	for _, s := range group {
		for _, d := range s.list {
			owners, cmds = append(owners, d.owner), append(cmds, d.cmd)
		}
	}
	if !b.breaker.allow(time.Now()) {
		for _, c := range cmds {
			c.SetErr(unavailable(errBreaker))
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.deadline)
	defer cancel()
	b.exec(ctx, group[0].kind, group[0].caller, len(group), owners, cmds)
	b.breaker.report(answered(cmds), time.Now())
}

// answered says whether the server replied to anything at all.
func answered(cmds []redis.Cmder) bool {
	for _, c := range cmds {
		if err := c.Err(); err == nil || isReply(err) {
			return true
		}
	}
	return false
}
