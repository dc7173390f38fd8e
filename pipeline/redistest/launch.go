package redistest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
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

// launch says how a server is started.
type launch struct {
	kind Kind
	// ports is how many the server listens on; zero means one.
	ports int
	// args are the arguments once dir and ports are known, called again with other ports when some were taken.
	args func(*Server) []string
	// ready is what the log says when the server listens; "" means what redis-server says.
	ready string
	// tls reaches a server that speaks TLS only.
	tls *tls.Config
}

// started is a server that answers.
func started(t testing.TB, l launch) *Server {
	t.Helper()
	s := prepare(t, l)
	if err := s.boot(); err != nil {
		t.Fatal(err)
	}
	return s
}

// prepare makes all of a server but its process, and ends that with the test.
func prepare(t testing.TB, l launch) *Server {
	t.Helper()
	if testing.Short() {
		t.Skipf("needs a real %s server: not under -short", l.kind)
	}
	binary, err := l.kind.binary()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, launch: l, binary: binary, dir: t.TempDir(), log: &tail{}}
	t.Cleanup(s.stop)
	return s
}

// boot starts the process for the first time. Unlike the exported methods it may be called from any goroutine.
func (s *Server) boot() error {
	for attempt := 1; ; attempt++ {
		var err error
		if s.ports, err = freePorts(max(s.launch.ports, 1)); err != nil {
			return fmt.Errorf("find free ports: %w", err)
		}
		s.argv = s.launch.args(s)
		if err = s.start(s.argv); err == nil {
			s.client = redis.NewClient(&redis.Options{Addr: s.Addr(), TLSConfig: s.launch.tls})
			return nil
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return fmt.Errorf("start %s server: %w\n%s", s.launch.kind, err, s.log)
		}
	}
}

// boot starts several servers side by side.
func boot(t testing.TB, servers ...*Server) {
	t.Helper()
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { errs[i] = s.boot() })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// defaults are the arguments of an ordinary server. Persistence is off: a test that wants it says so in arguments that
// come later and win.
func (s *Server) defaults() []string {
	return []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.ports[0]), "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}
}

// start runs the process and waits until it answers PING.
func (s *Server) start(args []string) error {
	if err := s.run(args); err != nil {
		return err
	}
	if err := s.waitReady(); err != nil {
		s.Kill()
		return err
	}
	return nil
}

// run starts the process.
func (s *Server) run(args []string) error {
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
	return nil
}

// waitReady returns once the server answers PING, or why it will not.
func (s *Server) waitReady() error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), TLSConfig: s.launch.tls, MaxRetries: -1, DialTimeout: time.Second})
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
	if !strings.Contains(s.log.String(), cmp.Or(s.launch.ready, "Ready to accept connections")) {
		select {
		case <-s.exited:
			return errPortTaken
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
