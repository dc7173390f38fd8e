package envoy_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollgate-proxy/tollgate/envoy"
)

// newTLSUpstream serves HTTP/2 and HTTP/1.1 over TLS with a certificate for 127.0.0.1 and example.com, and returns the
// file of the authority that vouches for it.
func newTLSUpstream(t *testing.T, name string) (u *upstream, caFile string) {
	t.Helper()
	u = new(upstream)
	u.Server = httptest.NewUnstartedServer(u.handler(name))
	u.EnableHTTP2 = true
	u.StartTLS()
	t.Cleanup(u.Close)
	return u, writePEM(t, u.Certificate().Raw)
}

func writePEM(t *testing.T, certificate []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestHTTPSDeployment wants HTTP/2 by ALPN, and no request to a server whose certificate is not for the deployment's
// host.
func TestHTTPSDeployment(t *testing.T) {
	t.Parallel()
	a, caFile := newTLSUpstream(t, "a")
	tests := []struct {
		name, url string
		ok        bool
	}{
		{"the address in the certificate", a.URL, true},
		{"a name that is not", strings.Replace(a.URL, "127.0.0.1", "localhost", 1), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newGateway(t, gateway(map[string]string{"a": tt.url}), &processor{decide: toA, maxBody: 1 << 20},
				envoy.Options{CAFile: caFile})
			response, body := do(t, http.DefaultClient, post(t, e.URL("/v1/chat/completions"), []byte(`{}`), false))
			if !tt.ok {
				checkUnavailable(t, response, body)
				return
			}
			if got := decodeSeen(t, response, body); got.Proto != "HTTP/2.0" {
				t.Errorf("the upstream was asked in %s, want HTTP/2.0", got.Proto)
			}
		})
	}
	if a.requests.Load() > 1 {
		t.Errorf("the upstream got %d requests", a.requests.Load())
	}
}

// TestTrailersEndAnAnswer wants the filter to see the end of an answer that ends in trailers.
func TestTrailersEndAnAnswer(t *testing.T) {
	t.Parallel()
	a, caFile := newTLSUpstream(t, "a")
	p := &processor{decide: toA, maxBody: 1 << 20}
	e := newGateway(t, gateway(map[string]string{"a": a.URL}), p, envoy.Options{CAFile: caFile})
	response, body := do(t, http.DefaultClient, post(t, e.URL("/trailers"), []byte(`{}`), false))
	if response.StatusCode != http.StatusOK || string(body) != "{}" {
		t.Errorf("got %d %s", response.StatusCode, body)
	}
	if got := p.ends.Load(); got != 1 {
		t.Errorf("the filter saw %d ends, want 1", got)
	}
}
