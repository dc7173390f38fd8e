package tripcount

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// quietLimit bounds the wait for quiet: a test's own traffic ends, a subscription's may not.
const quietLimit = 5 * time.Second

// Proxy passes connections on to a Redis, counts the round trips and injects faults. It is safe for concurrent use.
//
// A round trip is the alternation of the two directions: a command that arrives while an earlier one on its connection
// still waits for its reply joins that trip. A connection that subscribes or monitors carries messages from then on; they
// pass, and are not counted. Neither are the connections of servers among themselves, a replica's or a Sentinel's.
type Proxy struct {
	addr   string
	record record
	faults faults

	mu sync.Mutex
	// network and upstream are where new connections go.
	network, upstream string
	// listener is nil while the proxy does not listen.
	listener net.Listener
	// accepted numbers the connections.
	accepted int
	conns    map[*link]struct{}
	closed   bool
	// running counts the accept loop and every connection.
	running sync.WaitGroup
}

// New listens on a free port of 127.0.0.1 and passes connections on to upstream, a host:port or unix:/path of a Redis.
// Close it when done.
func New(upstream string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the redis proxy: %w", err)
	}
	p := &Proxy{addr: listener.Addr().String(), listener: listener, conns: map[*link]struct{}{}}
	p.Redirect(upstream)
	p.running.Go(func() { p.accept(listener) })
	return p, nil
}

// Redirect lets new connections go to another upstream, a host:port or unix:/path. Those that are open stay where they are,
// as when a name or a virtual address moves to another server.
func (p *Proxy) Redirect(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.upstream = "tcp", upstream
	if path, ok := strings.CutPrefix(upstream, "unix:"); ok {
		p.network, p.upstream = "unix", path
	}
}

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.addr }

// URL is the proxy's address as a redis:// URL of database 0.
func (p *Proxy) URL() string { return "redis://" + p.Addr() + "/0" }

// Trips are the round trips since the last Reset in the order they began, those still open included. Trips that only
// set a connection up or ask for the topology are not among them; see Handshakes and Topology. PING is a trip like any other.
func (p *Proxy) Trips() []Trip { return p.record.snapshot(work) }

// Handshakes are the round trips that only set a connection up: HELLO, AUTH, SELECT, CLIENT SETINFO, READONLY, an ASKING
// sent alone and the like, and the SUBSCRIBE or MONITOR after which a connection carries messages.
func (p *Proxy) Handshakes() []Trip { return p.record.snapshot(setup) }

// Topology are the round trips that only ask where things are: CLUSTER, COMMAND, SENTINEL, ROLE. A client sends them beside
// its requests, when it starts or was sent elsewhere.
func (p *Proxy) Topology() []Trip { return p.record.snapshot(topology) }

// Reset waits until nothing has passed for 20 ms and forgets all trips.
func (p *Proxy) Reset() {
	p.WaitQuiet(20 * time.Millisecond)
	p.record.reset()
}

// WaitQuiet returns once no byte has passed in either direction for idle, and says so; false when that did not come true
// within 5 s. Messages (of subscriptions, between servers) do not count. What is written after an answer (a deferred batch) is in Trips after it.
func (p *Proxy) WaitQuiet(idle time.Duration) bool {
	deadline := time.Now().Add(quietLimit)
	for {
		left := idle - p.record.idle()
		if left <= 0 {
			return true
		}
		if time.Now().Add(left).After(deadline) {
			return false
		}
		time.Sleep(left)
	}
}

// Connections is the number of client connections open now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Listen says whether anybody listens at the proxy's address. Listen(false) drops all connections, and dials are refused as
// where a process is gone, while Refuse is a host that resets what it accepted. Listen(true) takes the same port again, and
// fails when that was taken meanwhile.
func (p *Proxy) Listen(on bool) error {
	p.mu.Lock()
	listener := p.listener
	if !on {
		p.listener = nil
	}
	p.mu.Unlock()
	switch {
	case !on && listener != nil:
		err := listener.Close()
		p.drop()
		return err
	case on && listener == nil:
		return p.listen()
	}
	return nil
}

// listen takes the proxy's port again.
func (p *Proxy) listen() error {
	listener, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("listen for the redis proxy again: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return listener.Close()
	}
	p.listener = listener
	p.running.Go(func() { p.accept(listener) })
	return nil
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		if p.faults.refusing() {
			reset(client)
			continue
		}
		p.mu.Lock()
		p.accepted++
		number := p.accepted
		p.mu.Unlock()
		p.running.Go(func() { p.serve(listener, number, client) })
	}
}

// serve dials the upstream and pumps both directions until either ends.
func (p *Proxy) serve(listener net.Listener, number int, client net.Conn) {
	p.mu.Lock()
	network, upstream := p.network, p.upstream
	p.mu.Unlock()
	server, err := net.DialTimeout(network, upstream, 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	l := &link{proxy: p, number: number, client: client, server: server, done: make(chan struct{})}
	p.mu.Lock()
	if p.closed || p.listener != listener || p.faults.refusing() {
		p.mu.Unlock()
		l.drop()
		return
	}
	p.conns[l] = struct{}{}
	p.mu.Unlock()
	l.run()
	p.mu.Lock()
	delete(p.conns, l)
	p.mu.Unlock()
}

// drop ends all connections.
func (p *Proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.drop()
	}
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	// Close fails only for a listener that is closed already.
	_ = p.Listen(false)
	p.drop()
	p.running.Wait()
}

// reset closes a TCP connection with a reset, as a host without a listener would.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// It fails only when the connection is gone already.
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
