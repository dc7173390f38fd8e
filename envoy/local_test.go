package envoy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
)

// parentVariable makes the test binary a process that runs an Envoy until it is killed.
const parentVariable = "ENVOY_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		if err := parent(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// parent starts an Envoy in the way that is hardest on it, from a thread that ends, prints its process id and waits.
func parent() error {
	bootstrap, err := envoy.Bootstrap(gateway(nil), envoy.BootstrapOptions{Processor: envoy.Upstream{Address: "127.0.0.1:1"}})
	if err != nil {
		return err
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		local, err := envoy.Start(context.Background(), envoy.LocalOptions{Bootstrap: bootstrap})
		if err == nil {
			fmt.Println(local.PID())
		}
		result <- err
	}()
	if err := <-result; err != nil {
		return err
	}
	endIdleThreads()
	select {}
}

// endIdleThreads makes the threads that wait for work take a goroutine each that ends its thread.
func endIdleThreads() {
	const many = 64 // more than the runtime has
	var locked sync.WaitGroup
	locked.Add(many)
	for range many {
		go func() {
			runtime.LockOSThread()
			locked.Done()
			locked.Wait()
		}()
	}
	locked.Wait()
}

// startParent runs the test binary as a parent in a process group of its own and returns it with its Envoy's id.
func startParent(t *testing.T) (cmd *exec.Cmd, pid int) {
	t.Helper()
	envoytest.Binary(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self)
	// What a kill -9 leaves behind goes with the test.
	cmd.Env = append(os.Environ(), parentVariable+"=1", "TMPDIR="+socketDir(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, by the test or by this
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the parent printed %q: %v", line, err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	return cmd, pid
}

// alive reports whether a process runs; one that is dead and not yet reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}

// TestEnvoyDiesWithItsParent wants an Envoy to outlive the thread that asked for it, and not its parent's kill -9.
func TestEnvoyDiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child's life to its parent's")
	}
	t.Parallel()
	cmd, pid := startParent(t)
	time.Sleep(300 * time.Millisecond) // the thread that called Start has ended
	if !alive(pid) {
		t.Fatal("envoy died with the thread that called Start")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("envoy outlives its parent's kill -9")
		}
	}
}

// TestInterruptDoesNotReachEnvoy sends the parent's process group what a terminal sends at Ctrl-C.
func TestInterruptDoesNotReachEnvoy(t *testing.T) {
	t.Parallel()
	cmd, pid := startParent(t)
	group, err := syscall.Getpgid(pid)
	if err != nil {
		t.Fatal(err)
	}
	if group == cmd.Process.Pid || group == syscall.Getpgrp() {
		t.Fatalf("envoy is in group %d, its parent's", group)
	}
	// A stopped parent cannot die of the interrupt, so that what happens to Envoy is the interrupt's doing.
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if !alive(pid) {
		t.Error("an interrupt of the parent's group ended envoy")
	}
}

// startLocal runs an Envoy at a free port, in front of a processor and an upstream.
func startLocal(t *testing.T, a *upstream) (*envoy.Local, string) {
	t.Helper()
	envoytest.Binary(t)
	p := &processor{decide: toA, maxBody: 1 << 20}
	bootstrap, err := envoy.Bootstrap(gateway(map[string]string{"a": a.URL}), envoy.BootstrapOptions{Processor: p.serve(t)})
	if err != nil {
		t.Fatal(err)
	}
	local, err := envoy.Start(t.Context(), envoy.LocalOptions{Bootstrap: bootstrap, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(local.Stop)
	addresses, err := local.Addresses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return local, addresses[0]
}

// TestDrain wants the running stream to its end, and no new connection.
func TestDrain(t *testing.T) {
	t.Parallel()
	local, address := startLocal(t, newUpstream(t, "a"))
	response, err := http.DefaultClient.Do(post(t, "http://"+address+"/sse", []byte(`{}`), false))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	drained := make(chan error, 1)
	go func() { drained <- local.Drain(t.Context()) }()
	time.Sleep(eventGap)
	if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		_ = conn.Close()
		t.Error("a draining envoy accepts connections")
	}
	select {
	case err := <-drained:
		t.Fatalf("drained (%v) while a stream runs", err)
	default:
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || bytes.Count(body, []byte("data:")) != events {
		t.Errorf("the drain cut a stream: %v after %q", err, body)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	local.Stop()
	if alive(local.PID()) || local.Err() != nil {
		t.Errorf("after Stop: alive %v, error %v", alive(local.PID()), local.Err())
	}
}

// TestDrainEndsWithItsContext wants a drain to give up on a stream that goes on, and to say so.
func TestDrainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	local, address := startLocal(t, newUpstream(t, "a"))
	response, err := http.DefaultClient.Do(post(t, "http://"+address+"/sse", []byte(`{}`), false))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), eventGap)
	defer cancel()
	if err := local.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// TestCrashIsReported wants an Envoy that died by itself to be an error, and its files gone after Stop.
func TestCrashIsReported(t *testing.T) {
	t.Parallel()
	local, _ := startLocal(t, newUpstream(t, "a"))
	if err := syscall.Kill(local.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-local.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the death of envoy went unnoticed")
	}
	if err := local.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v does not say what ended envoy", err)
	}
}

// TestStartErrors wants one line that says what to do.
func TestStartErrors(t *testing.T) {
	envoytest.Binary(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	old := filepath.Join(t.TempDir(), "envoy")
	script := "#!/bin/sh\necho 'envoy  version: 0123abc/1.31.2/Clean/RELEASE/BoringSSL'\n"
	if err := os.WriteFile(old, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, variable, path string
		options              envoy.LocalOptions
		want                 string
	}{
		{name: "address in use", variable: os.Getenv(envoy.BinaryVariable),
			options: envoy.LocalOptions{Gateway: taken.Addr().String()}, want: "gateway address " + taken.Addr().String() + " is in use"},
		{name: "no binary", path: t.TempDir(), want: "no envoy binary: set TOLLGATE_ENVOY"},
		{name: "a variable that names nothing", variable: "/nowhere/envoy", want: "TOLLGATE_ENVOY"},
		{name: "an old one", variable: old, want: "is Envoy 1.31: 1.40 or later is needed"},
		{name: "a fallback", path: t.TempDir(), options: envoy.LocalOptions{Binary: old}, want: "is Envoy 1.31"},
		{name: "not Envoy", variable: "/bin/true", want: "does not print Envoy's version"},
		{name: "a bootstrap that is none", variable: os.Getenv(envoy.BinaryVariable),
			options: envoy.LocalOptions{Bootstrap: []byte("nonsense: true\n")}, want: "envoy ended at its start"},
		{name: "an admin address for all", variable: os.Getenv(envoy.BinaryVariable),
			options: envoy.LocalOptions{Admin: "0.0.0.0:9905"}, want: "not a loopback address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(envoy.BinaryVariable, tt.variable)
			if tt.path != "" {
				t.Setenv("PATH", tt.path)
			}
			local, err := envoy.Start(t.Context(), tt.options)
			if err == nil {
				local.Stop()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, tt.want)
			}
		})
	}
}
