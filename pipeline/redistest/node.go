package redistest

import (
	"fmt"
	"net"
	"testing"
	"time"
)

const (
	// stableTimeout bounds every wait for servers to agree among themselves; they need a second or two.
	stableTimeout = 60 * time.Second
	// pollPause is how often such a wait looks.
	pollPause = 20 * time.Millisecond
)

// Node is one server of several that know each other. Like its Server it belongs to the test's goroutine, but for Addr.
type Node struct {
	// Server is the process. Its Addr is its own port, past the proxy: what a test does there is not counted.
	Server *Server
	// Proxy is what the node announces as its address; nil without Proxied.
	Proxy *Proxy
	// id is a cluster node's name among its peers.
	id string
}

// Addr is the host:port that clients see: the proxy's if there is one.
func (n *Node) Addr() string {
	if n.Proxy != nil {
		return n.Proxy.Addr()
	}
	return n.Server.Addr()
}

// Kill ends the server; dials to the node are refused from then on, at its proxy too.
func (n *Node) Kill() {
	n.Server.t.Helper()
	n.Server.Kill()
	n.listen(false)
}

// Restart starts the server again, as Server.Restart does. A node that comes back without persistence is empty: a master
// should have been replaced before.
func (n *Node) Restart() {
	n.Server.t.Helper()
	n.Server.Restart()
	n.listen(true)
}

// Pause stops the server without closing anything: it becomes a black hole.
func (n *Node) Pause() { n.Server.Pause() }

// Resume lets a paused server go on.
func (n *Node) Resume() { n.Server.Resume() }

// Role is "master" or "slave", as the node itself answers.
func (n *Node) Role() string {
	n.Server.t.Helper()
	role, err := n.role()
	if err != nil {
		n.Server.t.Fatal(err)
	}
	return role
}

func (n *Node) role() (string, error) {
	answer, err := n.Server.Client().Do(n.Server.t.Context(), "ROLE").Slice()
	if err != nil {
		return "", fmt.Errorf("ROLE of %s: %w", n.Addr(), err)
	}
	if len(answer) == 0 {
		return "", fmt.Errorf("ROLE of %s is empty", n.Addr())
	}
	return fmt.Sprint(answer[0]), nil
}

func (n *Node) listen(on bool) {
	n.Server.t.Helper()
	if n.Proxy == nil {
		return
	}
	if err := n.Proxy.Listen(on); err != nil {
		n.Server.t.Fatal(err)
	}
}

// port is the one that clients see.
func (n *Node) port() string {
	_, port, _ := net.SplitHostPort(n.Addr())
	return port
}

// newNode prepares a node; its proxy already listens, so that its server can be told which port to announce.
func newNode(t testing.TB, proxied bool, l launch) *Node {
	t.Helper()
	n := &Node{Server: prepare(t, l)}
	if proxied {
		n.Proxy = NewProxy(t, "127.0.0.1:0") // redirected once the server has its port
	}
	return n
}

// bootNodes starts the servers of nodes side by side and leads their proxies to them.
func bootNodes(t testing.TB, nodes []*Node) {
	t.Helper()
	var servers []*Server
	for _, n := range nodes {
		servers = append(servers, n.Server)
	}
	boot(t, servers...)
	for _, n := range nodes {
		if n.Proxy != nil {
			n.Proxy.Redirect(n.Server.Addr())
		}
	}
}

// settle waits until what it is waiting for is so; while it is not, so says why.
func settle(t testing.TB, so func() error) {
	t.Helper()
	for deadline := time.Now().Add(stableTimeout); ; time.Sleep(pollPause) {
		err := so()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", stableTimeout, err)
		}
	}
}
