package redistest

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Server is a server process that belongs to one test. Its methods may be called from the test's goroutine only, except
// Addr, URL and Client, which are safe anywhere.
type Server struct {
	t      testing.TB
	launch launch
	binary string
	dir    string
	// ports are those it may listen on; the first is for clients.
	ports  []int
	argv   []string
	client *redis.Client

	log *tail
	cmd *exec.Cmd
	// guard holds the write end of the pipe that keeps the process alive; see guarded.
	guard io.Closer
	// exited is closed once cmd has been waited for.
	exited chan struct{}
	paused bool
}

// Start runs redis-server on a free port of 127.0.0.1 until the test ends, without persistence. The args are passed on
// and win over the defaults: Start(t, "--appendonly", "yes"). The server's log is printed only when the test fails.
// Without redis-server the test fails and says how to install it; under -short it is skipped.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return Redis.Start(t, args...)
}

// Addr is the server's host:port. It stays the same across restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports[0])) }

// URL is the server's address as a redis:// or, with TLS, rediss:// URL of database 0.
func (s *Server) URL() string {
	if s.launch.tls != nil {
		return "rediss://" + s.Addr() + "/0"
	}
	return "redis://" + s.Addr() + "/0"
}

// Client is a client of the server with go-redis' defaults, closed when the test ends. Every call returns the same one.
func (s *Server) Client() *redis.Client { return s.client }

// Kill ends the process with SIGKILL and returns when it is gone; connections are reset and new ones refused.
// Killing a dead server is no error.
func (s *Server) Kill() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatalf("kill redis-server: %v", err)
	}
	<-s.exited
	s.cmd, s.paused = nil, false
	if err := s.guard.Close(); err != nil {
		s.t.Fatalf("release redis-server: %v", err)
	}
}

// Restart kills the process if it still runs and starts it again on the same port with the same arguments and folder.
// What was not persisted is gone, loaded scripts included.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(s.argv); err != nil {
		s.t.Fatalf("restart redis-server: %v\n%s", err, s.log)
	}
}

// Pause stops the process with SIGSTOP: the kernel still accepts connections, nothing answers.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	s.paused = true
}

// Resume lets a paused process go on; it then executes whatever arrived meanwhile.
func (s *Server) Resume() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
	s.paused = false
}

// running says whether the process can answer.
func (s *Server) running() bool { return s.cmd != nil && !s.paused }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatalf("signal redis-server: %v: it was killed", sig)
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal redis-server: %v: %v", sig, err)
	}
}

// stop ends the process and shows its log when the test failed.
func (s *Server) stop() {
	if s.client != nil {
		// Close fails only for a client that was closed before.
		_ = s.client.Close()
	}
	s.Kill()
	if s.t.Failed() {
		s.t.Logf("%s server on ports %v:\n%s", s.launch.kind, s.ports, s.log)
	}
}
