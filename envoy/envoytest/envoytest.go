package envoytest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/envoy"
)

// stopTimeout bounds what a helper waits for.
const stopTimeout = 30 * time.Second

// Envoy is a running Envoy that ends with its test. Its methods may be called from any goroutine of the test.
type Envoy struct {
	*envoy.Local
	t    testing.TB
	addr string
	log  *logBuffer
}

// Binary is the path of the Envoy binary. Without one the test fails, because a suite that skips what it is about is
// green for nothing; under -short the test is skipped.
func Binary(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real Envoy")
	}
	path, err := envoy.FindBinary("")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Start runs an Envoy with a bootstrap and waits until it listens. A listener at port 0 gets a free one: see Addr. The
// bootstrap's admin interface is replaced by a private one.
func Start(t testing.TB, bootstrap []byte) *Envoy {
	t.Helper()
	Binary(t)
	e := &Envoy{t: t, log: new(logBuffer)}
	local, err := envoy.Start(t.Context(), envoy.LocalOptions{Bootstrap: bootstrap, Output: e.log, Concurrency: 2})
	if err != nil {
		t.Fatalf("%v\nenvoy's log:\n%s", err, e.log)
	}
	e.Local = local
	t.Cleanup(func() {
		if err := local.Err(); err != nil {
			t.Error(err)
		}
		local.Stop()
		if t.Failed() {
			t.Logf("envoy's log:\n%s", e.log)
		}
	})
	addresses, err := local.Addresses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.addr = addresses[0]
	return e
}

// Addr is the host and port of the first listener.
func (e *Envoy) Addr() string {
	return e.addr
}

// URL is a URL of the first listener with a path.
func (e *Envoy) URL(path string) string {
	return "http://" + e.addr + path
}

// Log is what Envoy has logged so far.
func (e *Envoy) Log() string {
	return e.log.String()
}

// Stat is the value of a counter or gauge, 0 when Envoy has none of that name (yet).
func (e *Envoy) Stat(name string) int64 {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	query := url.Values{"format": {"json"}, "filter": {"^" + regexp.QuoteMeta(name) + "$"}}
	body, err := e.Admin(ctx, http.MethodGet, "/stats?"+query.Encode())
	if err != nil {
		e.t.Fatal(err)
	}
	var list struct {
		Stats []struct {
			Name  string `json:"name"`
			Value int64  `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		e.t.Fatalf("statistic %s: %v", name, err)
	}
	for _, s := range list.Stats {
		if s.Name == name {
			return s.Value
		}
	}
	return 0
}

// Validate fails the test when Envoy refuses a bootstrap (`envoy --mode validate`), or warns about it: what is
// deprecated today is refused tomorrow.
func Validate(t testing.TB, bootstrap []byte) {
	t.Helper()
	binary := Binary(t)
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary,
		"--mode", "validate", "--config-path", file, "--log-level", "warning").CombinedOutput()
	if err != nil {
		t.Fatalf("envoy refuses the bootstrap: %v\n%s\n%s", err, out, bootstrap)
	}
	if bytes.Contains(out, []byte("[warning]")) {
		t.Errorf("envoy warns about the bootstrap:\n%s", out)
	}
}

// logBuffer is a buffer that can be read while Envoy writes to it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all that was written.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
