package providertest

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Provider is a scripted upstream that speaks HTTP/1.1. Until it is told otherwise it answers as Chat(Usage{Prompt: 10}).
type Provider struct {
	listener net.Listener
	// closing is closed when the test ends.
	closing chan struct{}
	// running counts the accept loop and every connection.
	running sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	hits   []*Hit
	queue  []Reply
	script func(Hit) Reply
	// inFlight are the requests whose answer is not complete; peak the most there were at once.
	inFlight, peak int
}

// New starts a provider on a free port of 127.0.0.1 that lives until the test ends.
func New(t testing.TB) *Provider {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the provider: %v", err)
	}
	p := &Provider{
		listener: listener, closing: make(chan struct{}), conns: map[net.Conn]struct{}{}, script: Chat(Usage{Prompt: 10}),
	}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is the provider's host:port.
func (p *Provider) Addr() string { return p.listener.Addr().String() }

// URL is the provider's address as http://host:port, without a path.
func (p *Provider) URL() string { return "http://" + p.Addr() }

// Script sets what answers each hit from now on. It is called on the goroutine of the request's connection, several at
// once, and may block.
func (p *Provider) Script(script func(Hit) Reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = script
}

// Answer makes every hit from now on have the same answer.
func (p *Provider) Answer(reply Reply) { p.Script(func(Hit) Reply { return reply }) }

// Queue sets the answers of the next hits, one each in the order of arrival; after them the script answers again.
func (p *Provider) Queue(replies ...Reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, replies...)
}

// Hits are the hits since the last Reset in the order of arrival, those under way included.
func (p *Provider) Hits() []Hit {
	p.mu.Lock()
	defer p.mu.Unlock()
	hits := make([]Hit, len(p.hits))
	for i, hit := range p.hits {
		hits[i] = *hit
	}
	return hits
}

// Wait returns the hits once there are n of them and none is under way, or after the timeout what there is then.
func (p *Provider) Wait(n int, timeout time.Duration) []Hit {
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		hits := p.Hits()
		underWay := slices.ContainsFunc(hits, func(h Hit) bool { return !h.Done && !h.Gone })
		if len(hits) >= n && !underWay || time.Now().After(deadline) {
			return hits
		}
	}
}

// Reported is the sum of the usage of all answers since the last Reset that were written whole: the provider's book.
func (p *Provider) Reported() Usage {
	var sum Usage
	for _, hit := range p.Hits() {
		if hit.Done {
			sum.Prompt += hit.Reply.Usage.Prompt
			sum.Cached += hit.Reply.Usage.Cached
			sum.Completion += hit.Reply.Usage.Completion
			sum.Reasoning += hit.Reply.Usage.Reasoning
		}
	}
	return sum
}

// InFlight is the number of requests whose answer is not complete.
func (p *Provider) InFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight
}

// Peak is the most requests that were in flight at once since the last Reset.
func (p *Provider) Peak() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peak
}

// Reset forgets the hits and the queue; the script stays. Requests under way go on unlogged.
func (p *Provider) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hits, p.queue = nil, nil
	p.peak = p.inFlight
}

// arrived logs a hit and returns its answer. The caller owes a call of ended.
func (p *Provider) arrived(hit *Hit) Reply {
	p.mu.Lock()
	p.hits = append(p.hits, hit)
	p.inFlight++
	p.peak = max(p.peak, p.inFlight)
	script := p.script
	if len(p.queue) > 0 {
		next := p.queue[0]
		p.queue = p.queue[1:]
		script = func(Hit) Reply { return next }
	}
	seen := *hit
	p.mu.Unlock()
	reply := script(seen)
	p.mu.Lock()
	defer p.mu.Unlock()
	hit.Reply = reply
	return reply
}

// ended notes that the answer of a hit was written to its end, or that its client went.
func (p *Provider) ended(hit *Hit, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	hit.Ended, hit.Done, hit.Gone = time.Now(), done, !done
}

// accept serves connections until the listener is closed.
func (p *Provider) accept() {
	for number := 1; ; number++ {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			conn.Close()
			return
		}
		p.conns[conn] = struct{}{}
		p.mu.Unlock()
		p.running.Go(func() {
			newExchange(p, number, conn).serve()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.conns, conn)
		})
	}
}

// close ends the provider and every connection.
func (p *Provider) close() {
	close(p.closing)
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for conn := range p.conns {
		conn.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}
