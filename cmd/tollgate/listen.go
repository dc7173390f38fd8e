package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// listen opens "host:port" or "unix:/path". The error is one line that names the setting.
func listen(name, address string) (net.Listener, error) {
	network, target := splitAddress(address)
	if network == "unix" {
		removeStale(target)
	}
	l, err := net.Listen(network, target)
	if err != nil {
		return nil, fmt.Errorf("listen.%s: %w", name, plainListenError(address, err))
	}
	return l, nil
}

// removeStale removes a socket that a process left behind when it was killed. One that somebody serves stays.
func removeStale(path string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return
	}
	_ = os.Remove(path) // if it cannot be, Listen says so
}

// splitAddress turns "unix:/path" or "host:port" into what net.Listen takes.
func splitAddress(address string) (network, target string) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return "unix", path
	}
	return "tcp", address
}

// plainListenError says the commonest reasons in plain words.
func plainListenError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use", address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s: permission denied", address)
	default:
		return err
	}
}

// isLoopback says whether only this machine reaches an address.
func isLoopback(address string) bool {
	network, target := splitAddress(address)
	if network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
