package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenOnASocketLeftBehind(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "tg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	first, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen("extproc", "unix:"+path); err == nil || !strings.Contains(err.Error(), "listen.extproc: unix:"+path+" is in use") {
		t.Errorf("a socket that is served: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = first.Close() // as a killed process leaves it
	l, err := listen("extproc", "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "unix:/x": true,
		"0.0.0.0:1": false, "10.0.0.1:1": false, "evil.example:1": false, "": false,
	} {
		if got := isLoopback(address); got != want {
			t.Errorf("%q: %t", address, got)
		}
	}
}
