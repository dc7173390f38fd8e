package envoy

import (
	"bytes"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child that runs until it is told to stop, or dies.
type process struct {
	pid    int
	exited chan struct{} // closed once it is gone and its output is read
	err    error         // why; valid after exited
}

// startProcess runs cmd from a goroutine that keeps its thread until the child is gone. Pdeathsig kills the child when
// the thread that forked it ends, and Go ends a thread when a goroutine that locked it returns: started from the
// caller's thread, the child could die at any time for no reason of its own.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = processAttributes()
	// Ends the reading of output that a grandchild keeps open; Envoy starts none.
	cmd.WaitDelay = time.Second
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go p.run(cmd, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil
	p.err = cmd.Wait()
	close(p.exited)
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// stop asks the child to end, waits, and kills it when it has not ended after grace.
func (p *process) stop(grace time.Duration) {
	if !p.running() {
		return
	}
	// An error means that it is gone already, which the wait then sees.
	_ = syscall.Kill(p.pid, syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(grace):
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.exited
	}
}

// tail passes output on and keeps the last lines, to name the cause when a start fails. Writers may be concurrent.
type tail struct {
	mu    sync.Mutex
	to    io.Writer // nil: nowhere
	lines []string
	rest  []byte // of a line whose end has not come
}

const (
	tailLines    = 5
	tailLineSize = 1 << 10
)

// Write never fails: a full disk under the log must not end Envoy.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.to != nil {
		_, _ = t.to.Write(b)
	}
	t.rest = append(t.rest, b...)
	for {
		line, rest, found := bytes.Cut(t.rest, []byte("\n"))
		if !found {
			t.rest = t.rest[:min(len(t.rest), tailLineSize)]
			return len(b), nil
		}
		t.rest = rest
		t.lines = append(t.lines, string(line[:min(len(line), tailLineSize)]))
		if len(t.lines) > tailLines {
			t.lines = t.lines[1:]
		}
	}
}

// String is the kept lines in one.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "; ")
}
