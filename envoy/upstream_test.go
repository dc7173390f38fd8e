package envoy_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
	"github.com/tollgate-proxy/tollgate/governance/config"
)

// seen is what an upstream says of the request it got.
type seen struct {
	Upstream string
	Host     string
	Path     string
	Proto    string
	Sum      string // hex SHA-256 of the body
	Length   int64  // content-length, -1 when chunked
	Size     int64
	Header   http.Header
}

// upstream is a model server of a test.
type upstream struct {
	*httptest.Server
	requests atomic.Int64
}

// newUpstream answers with what it has seen; /sse streams events.
func newUpstream(t testing.TB, name string) *upstream {
	t.Helper()
	u := new(upstream)
	u.Server = httptest.NewServer(u.handler(name))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) handler(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		u.requests.Add(1)
		hash := sha256.New()
		size, err := io.Copy(hash, r.Body)
		if err != nil {
			return // the client went away
		}
		w.Header().Set("content-type", "application/json")
		_ = json.NewEncoder(w).Encode(seen{
			Upstream: name, Host: r.Host, Path: r.URL.RequestURI(), Proto: r.Proto,
			Sum: hex.EncodeToString(hash.Sum(nil)), Length: r.ContentLength, Size: size, Header: r.Header,
		})
	})
	mux.HandleFunc("/sse", serveEvents)
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("trailer", "x-end")
		_, _ = io.WriteString(w, "{}")
		w.Header().Set("x-end", "yes")
	})
	return mux
}

// events and eventGap make a stream long enough to change the configuration under it.
const (
	events   = 5
	eventGap = 300 * time.Millisecond
)

// serveEvents streams events with a pause before each but the first.
func serveEvents(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("content-type", "text/event-stream")
	for i := range events {
		if i > 0 {
			time.Sleep(eventGap)
		}
		_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
		w.(http.Flusher).Flush()
	}
}

// newGateway runs an Envoy with a static bootstrap in front of a processor.
func newGateway(t testing.TB, cfg *config.Config, p *processor, o envoy.Options) *envoytest.Envoy {
	t.Helper()
	bootstrap, err := envoy.Bootstrap(cfg, envoy.BootstrapOptions{Processor: p.serve(t), Options: o})
	if err != nil {
		t.Fatal(err)
	}
	return envoytest.Start(t, bootstrap)
}

// byModel routes to the deployment that the body's model names, as tollgate's filter does.
func byModel(_ map[string]string, body []byte) verdict {
	var request struct {
		Model string `json:"model"`
	}
	_ = json.Unmarshal(body, &request) // no model: no cluster
	if request.Model == "" {
		return verdict{}
	}
	return verdict{cluster: envoy.DeploymentCluster(request.Model)}
}

// toA routes everything to deployment a, from any phase.
func toA(map[string]string, []byte) verdict {
	return verdict{cluster: envoy.DeploymentCluster("a")}
}

// do makes a request and reads its answer.
func do(t testing.TB, client *http.Client, r *http.Request) (*http.Response, []byte) {
	t.Helper()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, body
}

// post is a POST request; chunked ones say no length.
func post(t testing.TB, url string, body []byte, chunked bool) *http.Request {
	t.Helper()
	var reader io.Reader = bytes.NewReader(body)
	if chunked {
		reader = io.MultiReader(reader) // hides the length
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("content-type", "application/json")
	return r
}

// decodeSeen reads an upstream's answer.
func decodeSeen(t testing.TB, response *http.Response, body []byte) seen {
	t.Helper()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", response.StatusCode, body)
	}
	var s seen
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatalf("answer %q: %v", body, err)
	}
	return s
}

// sum is the hex SHA-256 of a body.
func sum(body []byte) string {
	s := sha256.Sum256(body)
	return hex.EncodeToString(s[:])
}

// socketDir is a folder with a path short enough for a Unix socket, which t.TempDir's may not be.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
