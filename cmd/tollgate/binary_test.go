package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
)

// sideBySide is how many tests run at once unless the command line says otherwise: most of them wait for windows,
// leases and boundaries, not for a processor.
const sideBySide = 6

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", fmt.Sprint(sideBySide)) // it fails only for a flag that is not there
	}
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// built is the product as a binary, made once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// binary is the path of the built tollgate.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "tollgate-binary-"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(built.dir, "tollgate"), ".")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "tollgate")
}

// process is one `tollgate serve` with an Envoy of its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	exited chan struct{}
	Envoy  *envoytest.Envoy
	Log    *syncBuffer
}

// startProcess starts a `tollgate serve` and an Envoy for a configuration, as startReplica does within this process.
func startProcess(t *testing.T, s *stores, p *providertest.Provider, text string) *process {
	t.Helper()
	path := binary(t)
	dir, err := os.MkdirTemp("", "tg") // short: a Unix socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "extproc.sock")
	text = "version: 1\nlisten: {extproc: 'unix:" + socket + "', health: '127.0.0.1:0', admin: '127.0.0.1:0'}\n" +
		"gateway: {address: '127.0.0.1:0'}\nlog: {level: debug}\n" + text + "\nredis: {url: '" + s.Proxy.URL() + "', deadline: 10s}\n"
	text = strings.ReplaceAll(text, "PROVIDER", p.URL())
	file := filepath.Join(dir, "tollgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	x := &process{t: t, Log: new(syncBuffer), exited: make(chan struct{})}
	x.cmd = exec.CommandContext(context.Background(), path, "serve", "--config", file)
	x.cmd.Stderr = x.Log
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = x.cmd.Wait() // how it ended shows in its log
		close(x.exited)
	}()
	t.Cleanup(func() {
		x.signal(syscall.SIGTERM)
		select {
		case <-x.exited:
		case <-time.After(10 * time.Second):
			x.Kill()
		}
		if t.Failed() {
			t.Logf("log of tollgate serve:\n%s", x.Log)
		}
	})
	x.awaitSocket(socket)
	boot, err := envoy.Bootstrap(loadText(t, text), envoy.BootstrapOptions{Processor: envoy.Upstream{Address: "unix:" + socket}})
	if err != nil {
		t.Fatal(err)
	}
	x.Envoy = envoytest.Start(t, boot)
	return x
}

// awaitSocket returns when the process listens.
func (x *process) awaitSocket(path string) {
	x.t.Helper()
	for range 2000 {
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-x.exited:
			x.t.Fatalf("tollgate serve ended:\n%s", x.Log)
		case <-time.After(10 * time.Millisecond):
		}
	}
	x.t.Fatalf("tollgate serve does not listen:\n%s", x.Log)
}

func (x *process) signal(sig os.Signal) {
	_ = x.cmd.Process.Signal(sig) // it fails only for a process that has ended
}

// Kill ends the process with SIGKILL and returns when it is gone.
func (x *process) Kill() {
	x.signal(syscall.SIGKILL)
	<-x.exited
}
