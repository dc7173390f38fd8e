package tripcount

import (
	"sync"
	"time"
)

// faults are what a proxy does wrong on purpose. It is safe for concurrent use.
type faults struct {
	mu     sync.Mutex
	cuts   []func(cmd []string) bool
	delay  time.Duration
	refuse bool
	// stalled is closed when a stall ends; nil while nothing stalls.
	stalled chan struct{}
}

// cut says whether the reply to cmd must be lost, and uses that cut up.
func (f *faults) cut(cmd []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, match := range f.cuts {
		if match(cmd) {
			f.cuts = append(f.cuts[:i:i], f.cuts[i+1:]...)
			return true
		}
	}
	return false
}

// wait returns after the stall, if there is one; false when closed ends first.
func (f *faults) wait(closed <-chan struct{}) bool {
	f.mu.Lock()
	stalled := f.stalled
	f.mu.Unlock()
	if stalled == nil {
		return true
	}
	select {
	case <-stalled:
		return true
	case <-closed:
		return false
	}
}

// due is when what the server sends now arrives: zero without a delay.
func (f *faults) due() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.delay <= 0 {
		return time.Time{}
	}
	return time.Now().Add(f.delay)
}

func (f *faults) refusing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refuse
}

// CutAfter loses one reply: of the next command that match accepts, the server executes it, and the connection is then
// dropped at both ends before its reply is passed on. The replies before it in the same pipeline have passed. It holds
// for one command; call it again for another. Match is called with at most 256 bytes of each argument, and must not call
// the proxy.
func (p *Proxy) CutAfter(match func(cmd []string) bool) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.cuts = append(p.faults.cuts, match)
}

// Delay adds d to every round trip from now on; zero ends it. It is that of a long line: what the server sends arrives d
// later, all of a pipeline's replies equally, and no less of it in a second.
func (p *Proxy) Delay(d time.Duration) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.delay = d
}

// Refuse drops all connections and, while it is on, each new one as soon as it is accepted.
func (p *Proxy) Refuse(on bool) {
	p.faults.mu.Lock()
	p.faults.refuse = on
	p.faults.mu.Unlock()
	if on {
		p.drop()
	}
}

// Strand makes black holes of the connections that are open now, for good, as when a middlebox forgets them or an address
// moves: nothing passes in either direction, no end ever sees them closed, and only a timeout or a keep-alive finds out. New
// connections work.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.strand()
	}
}

// Stall makes the proxy a black hole while it is on: connections are accepted, bytes are read, none is passed on in either
// direction. Afterwards what was held goes on its way, as after a network partition: a command that its client has given
// up may still be executed.
func (p *Proxy) Stall(on bool) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	switch {
	case on && p.faults.stalled == nil:
		p.faults.stalled = make(chan struct{})
	case !on && p.faults.stalled != nil:
		close(p.faults.stalled)
		p.faults.stalled = nil
	}
}
