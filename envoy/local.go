package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout bounds Start when its context does not.
	startTimeout = 30 * time.Second
	// stopGrace is how long Envoy has to end after SIGTERM; it needs milliseconds.
	stopGrace = 5 * time.Second
	// pollInterval is how often Envoy is asked for a change of state.
	pollInterval = 20 * time.Millisecond
)

// LocalOptions say how to run an Envoy on this machine.
type LocalOptions struct {
	// Bootstrap is what Envoy starts with; its admin interface is replaced by Admin.
	Bootstrap []byte
	// Gateway is the address that must be free before the start; "" is not checked.
	Gateway string
	// Binary is the path tried last: see FindBinary.
	Binary string
	// Admin is the loopback "host:port" of the admin interface; "" is a Unix socket that only this user can reach.
	Admin string
	// Output takes Envoy's log, warnings and errors; nil drops it.
	Output io.Writer
	// Concurrency is the number of worker threads; 0 is one per hardware thread.
	Concurrency int
}

// Local is an Envoy that runs as a child process: in a process group of its own, so that Ctrl-C does not reach it, and
// on Linux gone when this process is, however it ends. Its methods may be called from any goroutine.
type Local struct {
	process *process
	output  *tail
	dir     string
	admin   adminClient
	stopped sync.Once
	mu      sync.Mutex
	stop    bool // by Stop, so the exit is no failure
}

// Start runs Envoy and returns when it accepts connections. ctx bounds the start alone; Stop ends Envoy.
func Start(ctx context.Context, o LocalOptions) (*Local, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	binary, err := FindBinary(o.Binary)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(ctx, binary); err != nil {
		return nil, err
	}
	if err := checkFree(o.Gateway); err != nil {
		return nil, err
	}
	dir, err := shortTempDir()
	if err != nil {
		return nil, fmt.Errorf("folder for envoy: %w", err)
	}
	l := &Local{dir: dir, output: &tail{to: o.Output}}
	if err := l.launch(ctx, binary, o); err != nil {
		l.Stop()
		return nil, err
	}
	return l, nil
}

func (l *Local) launch(ctx context.Context, binary string, o LocalOptions) error {
	adminAddress := o.Admin
	if adminAddress == "" {
		adminAddress = "unix:" + filepath.Join(l.dir, "admin.sock")
	}
	override, err := adminOverride(adminAddress)
	if err != nil {
		return err
	}
	l.admin = newAdminClient(adminAddress)
	file := filepath.Join(l.dir, "envoy.yaml")
	if err := os.WriteFile(file, o.Bootstrap, 0o600); err != nil {
		return fmt.Errorf("bootstrap of envoy: %w", err)
	}
	args := []string{
		"--config-path", file,
		"--config-yaml", override,
		// No second process, no shared memory under a number that another Envoy may have.
		"--disable-hot-restart",
		// Never debug: the ext_proc and http loggers then print credentials.
		"--log-level", "warning",
		// A drain tells every connection at once, instead of more of them as time passes.
		"--drain-strategy", "immediate",
	}
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = l.dir
	cmd.Stdout, cmd.Stderr = l.output, l.output
	if l.process, err = startProcess(cmd); err != nil {
		return fmt.Errorf("start %s: %w", binary, err)
	}
	return l.awaitReady(ctx)
}

// awaitReady returns once Envoy is live and has a listener.
func (l *Local) awaitReady(ctx context.Context) error {
	for {
		if l.admin.ready(ctx) {
			if addresses, err := l.Addresses(ctx); err == nil && len(addresses) > 0 {
				return nil
			}
		}
		select {
		case <-l.process.exited:
			return fmt.Errorf("envoy ended at its start: %s", l.output)
		case <-ctx.Done():
			return fmt.Errorf("envoy opened no listener: %w; its log says: %s", context.Cause(ctx), l.output)
		case <-time.After(pollInterval):
		}
	}
}

// Addresses are those Envoy listens on, with the ports the kernel chose where the configuration says 0.
func (l *Local) Addresses(ctx context.Context) ([]string, error) {
	return l.admin.listeners(ctx)
}

// Admin makes a request of Envoy's admin interface and returns the body of a 200 answer.
func (l *Local) Admin(ctx context.Context, method, path string) ([]byte, error) {
	return l.admin.do(ctx, method, path)
}

// PID is Envoy's process id.
func (l *Local) PID() int {
	return l.process.pid
}

// Done is closed when Envoy has ended.
func (l *Local) Done() <-chan struct{} {
	return l.process.exited
}

// Err is nil while Envoy runs and after Stop, else the reason it ended for.
func (l *Local) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop || l.process.running() {
		return nil
	}
	return fmt.Errorf("envoy ended by itself (%w): %s", l.process.err, l.output)
}

// Drain makes Envoy accept no more connections, tells its clients to leave, and returns when no request is under way:
// nil then, or the error of ctx. Envoy still runs; call Stop.
func (l *Local) Drain(ctx context.Context) error {
	// The first ends connections after their present response, the second closes the listeners without the grace
	// period that the first starts.
	for _, path := range []string{"/healthcheck/fail", "/drain_listeners?graceful", "/drain_listeners"} {
		if _, err := l.admin.do(ctx, "POST", path); err != nil {
			return fmt.Errorf("drain envoy: %w", err)
		}
	}
	for {
		active, err := l.admin.activeRequests(ctx)
		if err != nil {
			return fmt.Errorf("drain envoy: %w", err)
		}
		if active == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("drain envoy: %d requests are still under way: %w", active, context.Cause(ctx))
		case <-l.process.exited:
			return errors.New("drain envoy: it ended by itself")
		case <-time.After(pollInterval):
		}
	}
}

// Stop ends Envoy and the requests it still has, and removes its files. It returns when Envoy is gone; further calls do
// nothing.
func (l *Local) Stop() {
	l.stopped.Do(func() {
		l.mu.Lock()
		l.stop = true
		l.mu.Unlock()
		if l.process != nil {
			l.process.stop(stopGrace)
		}
		_ = os.RemoveAll(l.dir) // nothing is in there that matters
	})
}

// checkFree says which address is in use, where Envoy would say so among a screen of other lines.
func checkFree(address string) error {
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("gateway address %s is in use", address)
	}
	if err != nil {
		return fmt.Errorf("gateway address %s: %w", address, err)
	}
	return listener.Close()
}

// shortTempDir is a folder that only this user can enter, with a path that leaves room for a socket's name.
func shortTempDir() (string, error) {
	const room = maxSocketPath - len("/tollgate-envoy-4294967295/admin.sock")
	parent := os.TempDir()
	if len(parent) > room {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, "tollgate-envoy-")
}
