package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
)

// Replicated is a master with a replica behind one address, as a managed Redis shows it to its clients. Its methods belong
// to the test's goroutine.
type Replicated struct {
	// Proxy is the one address; it leads to the master.
	Proxy *Proxy
	// Master and Replica are the two servers as they are now.
	Master, Replica *Server
	t               testing.TB
}

// StartReplicated runs both until the test ends. The replica is complete when it returns. There is one proxy, with and
// without Proxied.
func StartReplicated(t testing.TB, opts ...Option) *Replicated {
	t.Helper()
	o := chosen(opts)
	o.proxied = false
	master, replica := newDataNode(t, o), newDataNode(t, o)
	bootNodes(t, []*Node{master, replica})
	follow(t, replica.Server, master.Server, master.Addr())
	return &Replicated{t: t, Master: master.Server, Replica: replica.Server, Proxy: NewProxy(t, master.Addr())}
}

// Switch makes the replica the master and leads new connections there. Connections that are open stay with the old master
// as long as it runs, which from then on is a replica and answers READONLY to writes. If it does not run, what it had not
// replicated is lost.
func (r *Replicated) Switch() {
	r.t.Helper()
	if r.Master.running() {
		r.waitReplicated()
	}
	replicaOf(r.t, r.Replica, "NO", "ONE")
	r.Master, r.Replica = r.Replica, r.Master
	r.Proxy.Redirect(r.Master.Addr())
	if r.Replica.running() {
		follow(r.t, r.Replica, r.Master, r.Master.Addr())
	}
}

// waitReplicated returns once the replica has all that the master had when it was called.
func (r *Replicated) waitReplicated() {
	r.t.Helper()
	wanted, err := r.Master.offset(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	settle(r.t, func() error {
		got, err := r.Replica.offset(r.t.Context())
		if err == nil && got < wanted {
			err = fmt.Errorf("the replica is at %d, the master at %d", got, wanted)
		}
		return err
	})
}

// newDataNode prepares a server that keeps who it follows in a file, as a Sentinel makes it do, and so across a restart.
func newDataNode(t testing.TB, o setup) *Node {
	t.Helper()
	var n *Node
	n = newNode(t, o.proxied, launch{kind: o.kind, args: func(s *Server) []string {
		args := append([]string{s.file("redis.conf", "")}, s.defaults()...)
		args = append(args, "--repl-diskless-sync-delay", "0")
		if n.Proxy != nil {
			args = append(args, "--replica-announce-ip", "127.0.0.1", "--replica-announce-port", n.port())
		}
		return append(args, o.args...)
	}})
	return n
}

// follow makes a server the replica of a master that has the address addr, and returns when every write reaches it.
func follow(t testing.TB, replica, master *Server, addr string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	replicaOf(t, replica, host, port)
	settle(t, func() error { return errors.Join(replica.replicates(t.Context()), master.replicates(t.Context())) })
}

// replicaOf sends REPLICAOF and keeps it for a restart.
func replicaOf(t testing.TB, s *Server, host, port string) {
	t.Helper()
	if err := s.Client().Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatalf("REPLICAOF %s %s: %v", host, port, err)
	}
	if err := s.Client().ConfigRewrite(t.Context()).Err(); err != nil {
		t.Fatalf("CONFIG REWRITE: %v", err)
	}
}

// replicates says why a replica does not follow its master, or why a master does not send all writes to its replicas; it
// holds them back from one that has its data, but has not told so yet.
func (s *Server) replicates(ctx context.Context) error {
	info, err := s.Client().Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(info) {
		line = strings.TrimSpace(line)
		name, value, _ := strings.Cut(line, ":")
		waits := strings.HasPrefix(value, "ip=") && !strings.Contains(value, "state=online")
		if waits || name == "master_link_status" && value != "up" {
			return fmt.Errorf("replication is not complete: %s", line)
		}
	}
	return nil
}

// offset is how much of the replication stream the server has sent or received, in bytes.
func (s *Server) offset(ctx context.Context) (int64, error) {
	info, err := s.Client().Info(ctx, "replication").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "master_repl_offset:"); ok {
			return strconv.ParseInt(n, 10, 64)
		}
	}
	return 0, fmt.Errorf("no master_repl_offset in:\n%s", info)
}
