package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// benchRedis is the address of a Redis to measure on: the one given, else a redis-server started here. stop ends it.
func benchRedis(ctx context.Context, url string) (addr string, stop func(), err error) {
	if url != "" {
		addr, err = redisAddress(url)
		return addr, func() {}, err
	}
	binary, err := benchBinary()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "tollgate-")
	if err != nil {
		return "", nil, fmt.Errorf("directory for redis: %w", err)
	}
	socket := filepath.Join(dir, "redis.sock")
	// Without a port, so that none can be taken; without persistence.
	cmd := exec.CommandContext(ctx, binary, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, fmt.Errorf("start redis-server: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	for range 200 {
		if c, err := net.Dial("unix", socket); err == nil {
			return "unix:" + socket, stop, c.Close()
		}
		time.Sleep(25 * time.Millisecond)
	}
	stop()
	return "", nil, errors.New("redis-server did not come up within 5 s")
}

// benchBinary is the path of the redis-server to be started.
func benchBinary() (string, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("no redis-server on PATH to measure on: install one (Debian: apt-get install redis-server) or give --redis URL")
	}
	return binary, nil
}

// redisAddress is the host:port of a redis:// URL, or unix:/path. A bench puts a proxy of its own in between, which passes no TLS.
func redisAddress(url string) (string, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return "", usageError{fmt.Errorf("--redis: %w", err)}
	}
	if opt.TLSConfig != nil || opt.Username != "" || opt.Password != "" {
		return "", usageError{errors.New("--redis: only a plain redis:// URL without credentials can be counted")}
	}
	if opt.DB != 0 {
		return "", usageError{fmt.Errorf("--redis: only database 0 is measured on, not %d", opt.DB)}
	}
	if opt.Network == "unix" {
		return "unix:" + opt.Addr, nil
	}
	return opt.Addr, nil
}
