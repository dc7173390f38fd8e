package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Kind is a server that speaks the protocol.
type Kind string

// The kinds of servers, each of which must do.
const (
	Redis   Kind = "redis"   // redis-server in PATH
	Valkey8 Kind = "valkey8" // the valkey-server 8 that $TOLLGATE_VALKEY8 names
	Valkey9 Kind = "valkey9" // the valkey-server 9 that $TOLLGATE_VALKEY9 names
)

// Kinds runs a subtest for every kind of server. A kind whose binary is missing fails when it is started: a test that
// leaves one out says nothing about it.
func Kinds(t *testing.T, run func(t *testing.T, kind Kind)) {
	t.Helper()
	for _, kind := range []Kind{Redis, Valkey8, Valkey9} {
		t.Run(string(kind), func(t *testing.T) { run(t, kind) })
	}
}

// Start is like the function Start, for this kind of server.
func (k Kind) Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return started(t, launch{kind: k, args: func(s *Server) []string { return append(s.defaults(), args...) }})
}

// binary is the path of the server, or an error that says how to get it.
func (k Kind) binary() (string, error) {
	if k == Redis {
		path, err := exec.LookPath("redis-server")
		if err != nil {
			return "", fmt.Errorf("redis-server is not in PATH: install it (Debian: apt-get install redis-server; macOS: brew install redis) or run make tools as root: %w", err)
		}
		return path, nil
	}
	variable := map[Kind]string{Valkey8: "TOLLGATE_VALKEY8", Valkey9: "TOLLGATE_VALKEY9"}[k]
	path := os.Getenv(variable)
	if path == "" {
		return "", fmt.Errorf(`%s is not set: run make test, or eval "$(make -s env)" before go test`, variable)
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf(`%s names no server: set it to a valkey-server, or eval "$(make -s env)" before go test: %w`, variable, err)
	}
	return path, nil
}
