package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// newTestApp is an app on the embedded store.
func newTestApp(t *testing.T, cfg *config.Config) *app {
	t.Helper()
	log := new(syncBuffer)
	a, err := newApp(cfg, addresses{extproc: "127.0.0.1:0", health: "127.0.0.1:0", admin: "127.0.0.1:0"}, newLog(log, cfg.Log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.shutdown(0)
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return a
}

func get(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestDebugTrips(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, config.Default())
	_, _ = pipeline.Declare(a.backend.Batch("req-1"), "cache", pipeline.Bytes, "GET", "some-key").Get(t.Context())
	url := "http://" + a.bound["admin"] + "/debug/trips"
	code, body := get(t, url)
	for _, want := range []string{"\"callers\": [\n        \"req-1\"\n", `"owner": "cache"`, `"name": "get"`, `"key": "some-key"`, `"duration_ns": `, `"kind": "request"`} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("status %d: no %s in\n%s", code, want, body)
		}
	}
	code, body = get(t, url, "Accept", "text/html")
	if code != 200 || !strings.Contains(body, "<td>\nreq-1<br><td>") || !strings.Contains(body, "<b>cache</b> get some-key") {
		t.Errorf("page: %d\n%s", code, body)
	}
	if code, _ := get(t, url, "Host", "rebound.example"); code != http.StatusForbidden {
		t.Errorf("another host name: %d", code)
	}
	req := httptest.NewRequest("GET", "http://localhost/debug/trips", nil)
	req.RemoteAddr = "192.0.2.1:1234"
	w := httptest.NewRecorder()
	a.debugHandler().ServeHTTP(w, req)
	if w.Code != http.StatusForbidden {
		t.Errorf("from another machine: %d", w.Code)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, config.Default())
	base := "http://" + a.bound["health"]
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok\n", "/metrics": "tollgate_redis_up 1"} {
		if code, body := get(t, base+path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d\n%s", path, code, body)
		}
	}
	a.draining.Store(true)
	if code, body := get(t, base+"/readyz"); code != 503 || body != "draining\n" {
		t.Errorf("draining: %d %s", code, body)
	}
	if code, _ := get(t, base+"/healthz"); code != 200 {
		t.Errorf("a draining process is alive: %d", code)
	}
	if code, _ := get(t, base+"/debug/trips"); code != 404 {
		t.Errorf("identities on the health listener: %d", code)
	}
}
