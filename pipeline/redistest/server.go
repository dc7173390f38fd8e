package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// startTimeout bounds the wait for PONG; a loaded two-core machine needs about 100 ms.
	startTimeout = 15 * time.Second
	// portAttempts bounds how often Start picks another port because somebody took the first in between.
	portAttempts = 5
)

// errPortTaken says that redis-server exited because its port was in use.
var errPortTaken = errors.New("port is in use")

// Server is a redis-server process that belongs to one test. Its methods may be called from the test's goroutine only,
// except Addr, URL and Client, which are safe anywhere.
type Server struct {
	t      testing.TB
	binary string
	dir    string
	port   int
	args   []string
	client *redis.Client

	log *tail
	cmd *exec.Cmd
	// guard holds the write end of the pipe that keeps the process alive; see guarded.
	guard io.Closer
	// exited is closed once cmd has been waited for.
	exited chan struct{}
}

// Start runs redis-server on a free port of 127.0.0.1 until the test ends, without persistence. The args are passed on
// and win over the defaults: Start(t, "--appendonly", "yes"). The server's log is printed only when the test fails.
// Without redis-server the test fails and says how to install it; under -short it is skipped.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real redis-server: not under -short")
	}
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal("redis-server is not in PATH: install it (Debian: apt-get install redis-server; macOS: brew install redis) or run make tools as root")
	}
	s := &Server{t: t, binary: binary, dir: t.TempDir(), args: args, log: &tail{}}
	for attempt := 1; ; attempt++ {
		if s.port, err = freePort(); err != nil {
			t.Fatalf("find a free port: %v", err)
		}
		if err = s.start(); err == nil {
			break
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			t.Fatalf("start redis-server: %v\n%s", err, s.log)
		}
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(s.stop)
	return s
}

// Addr is the server's host:port. It stays the same across restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server's address as a redis:// URL of database 0.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

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
	s.cmd = nil
	if err := s.guard.Close(); err != nil {
		s.t.Fatalf("release redis-server: %v", err)
	}
}

// Restart kills the process if it still runs and starts it again on the same port with the same arguments and folder.
// What was not persisted is gone, loaded scripts included.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatalf("restart redis-server: %v\n%s", err, s.log)
	}
}

// Pause stops the process with SIGSTOP: the kernel still accepts connections, nothing answers.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on; it then executes whatever arrived meanwhile.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatalf("signal redis-server: %v: it was killed", sig)
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal redis-server: %v: %v", sig, err)
	}
}

// start runs the process and waits until it answers PING.
func (s *Server) start() error {
	// Persistence is off: a test that wants it says so in args, which come last and win.
	args := append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}, s.args...)
	s.log.Reset()
	cmd := exec.Command(s.binary, args...)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := cmd.Start(); err != nil {
		return err
	}
	guard, err := guarded(cmd.Process.Pid)
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		// The exit status of a server that we kill says nothing; one that dies alone shows in its log.
		_ = cmd.Wait()
	}()
	s.cmd, s.guard, s.exited = cmd, guard, exited
	if err := s.waitReady(); err != nil {
		s.Kill()
		return err
	}
	return nil
}

// waitReady returns once the server answers PING, or why it will not.
func (s *Server) waitReady() error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialTimeout: time.Second})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		// A server that loads its append-only file answers LOADING; one that wants a password is up.
		err := client.Ping(ctx).Err()
		if err == nil || strings.HasPrefix(err.Error(), "NOAUTH") {
			return s.own()
		}
		select {
		case <-s.exited:
			if strings.Contains(s.log.String(), "Address already in use") {
				return errPortTaken
			}
			return errors.New("it exited")
		case <-ctx.Done():
			return fmt.Errorf("no PONG within %v: %w", startTimeout, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// own tells our process from a stranger that took the port and answers PING in its place.
func (s *Server) own() error {
	if !strings.Contains(s.log.String(), "Ready to accept connections") {
		select {
		case <-s.exited:
			return errPortTaken
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// stop ends the process and shows its log when the test failed.
func (s *Server) stop() {
	// Close fails only for a client that was closed before.
	_ = s.client.Close()
	s.Kill()
	if s.t.Failed() {
		s.t.Logf("redis-server on port %d:\n%s", s.port, s.log)
	}
}

// guarded starts a shell that kills the process when this one is gone. A test binary that dies (a timeout's panic, a
// kill -9) runs no cleanup and would leave its servers behind. Closing the result ends the guard; do so only after the
// process was waited for, when the kill finds nothing.
func guarded(pid int) (io.Closer, error) {
	guard := exec.Command("/bin/sh", "-c", `read -r done || kill -9 "$1" 2>/dev/null`, "guard", strconv.Itoa(pid))
	in, err := guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := guard.Start(); err != nil {
		return nil, err
	}
	return &guardian{cmd: guard, in: in}, nil
}

// guardian is the shell started by guarded.
type guardian struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// Close tells the shell that there is nothing left to kill, and waits for it.
func (g *guardian) Close() error {
	_, err := io.WriteString(g.in, "done\n")
	return errors.Join(err, g.in.Close(), g.cmd.Wait())
}

// freePort asks the kernel for a port that nobody listens on. Somebody may take it before Redis does; Start tries again.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
