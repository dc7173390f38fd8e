package envoy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
)

// http2Client speaks HTTP/2 in the clear.
func http2Client() *http.Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: &protocols}}
}

// TestRouteFollowsTheBody is E-67: the deployment is known only after the body, and no client chooses it.
func TestRouteFollowsTheBody(t *testing.T) {
	t.Parallel()
	a, b := newUpstream(t, "a"), newUpstream(t, "b")
	e := newGateway(t, gateway(map[string]string{"a": a.URL, "b": b.URL}),
		&processor{decide: byModel, maxBody: 32 << 20}, envoy.Options{})
	padding := strings.Repeat("x", 2<<20)
	tests := []struct {
		name    string
		body    string
		chunked bool
		h2      bool
		spoof   string // ClusterHeader as the client sends it
		want    string // upstream; "" is a 503
	}{
		{name: "with a length", body: `{"model":"b"}`, want: "b"},
		{name: "chunked", body: `{"model":"b"}`, chunked: true, want: "b"},
		{name: "over HTTP/2", body: `{"model":"b"}`, h2: true, want: "b"},
		{name: "of 2 MiB", body: `{"model":"b","x":"` + padding + `"}`, want: "b"},
		{name: "to the other", body: `{"model":"a"}`, want: "a"},
		{name: "with a spoofed cluster", body: `{"model":"b"}`, spoof: "deployment/a", want: "b"},
		{name: "with nothing but a spoofed cluster", body: `{}`, spoof: "deployment/a"},
		{name: "to no deployment", body: `{}`},
		{name: "to an unknown deployment", body: `{"model":"c"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := http.DefaultClient
			if tt.h2 {
				client = http2Client()
			}
			r := post(t, e.URL("/v1/chat/completions"), []byte(tt.body), tt.chunked)
			if tt.spoof != "" {
				r.Header.Set(envoy.ClusterHeader, tt.spoof)
			}
			response, body := do(t, client, r)
			if tt.want == "" {
				checkUnavailable(t, response, body)
				return
			}
			got := decodeSeen(t, response, body)
			if got.Upstream != tt.want || got.Sum != sum([]byte(tt.body)) {
				t.Errorf("upstream %q got %d bytes, want %q and %d bytes unchanged", got.Upstream, got.Size, tt.want, len(tt.body))
			}
		})
	}
}

// checkUnavailable wants a 503 whose body an SDK can read.
func checkUnavailable(t *testing.T, response *http.Response, body []byte) {
	t.Helper()
	var refusal struct {
		Type  string
		Error struct{ Type, Code, Message string }
	}
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503: %s", response.StatusCode, body)
	}
	if err := json.Unmarshal(body, &refusal); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	if refusal.Type != "error" || refusal.Error.Type != "server_error" || refusal.Error.Message == "" {
		t.Errorf("body %s is no error that an SDK reads", body)
	}
	if got := response.Header.Get("content-type"); got != "application/json" {
		t.Errorf("content-type %q, want application/json", got)
	}
}

// TestBodySizes is E-61: bodies up to max_body arrive intact, larger ones get the filter's own 413.
func TestBodySizes(t *testing.T) {
	t.Parallel()
	a := newUpstream(t, "a")
	p := &processor{decide: toA, maxBody: 32 << 20}
	e := newGateway(t, gateway(map[string]string{"a": a.URL}), p, envoy.Options{})
	source := rand.NewChaCha8([32]byte{1})
	for _, size := range []int{0, 1, 33 << 10, 1100 << 10, 3900 << 10, 4100 << 10, 12 << 20, 31 << 20, 33 << 20} {
		body := make([]byte, size)
		_, _ = source.Read(body)
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, chunked %v", size, chunked), func(t *testing.T) {
				before := a.requests.Load()
				response, answer := do(t, http.DefaultClient, post(t, e.URL("/v1/chat/completions"), body, chunked))
				if size > p.maxBody {
					if response.StatusCode != http.StatusRequestEntityTooLarge || string(answer) != tooLarge {
						t.Errorf("got %d %s, want the filter's 413", response.StatusCode, answer)
					}
					if got := a.requests.Load(); got != before {
						t.Errorf("the upstream got the refused request")
					}
					return
				}
				if got := decodeSeen(t, response, answer); got.Sum != sum(body) {
					t.Errorf("the upstream got %d bytes of sum %s, want %d of %s", got.Size, got.Sum, size, sum(body))
				}
			})
		}
	}
	if largest := p.largestPiece.Load(); largest > 4<<20-1<<10 {
		t.Errorf("a message held %d bytes of body: grpc-go's default limit is 4 MiB", largest)
	}
}

// TestEditedRequest is E-60 and the header edits of the filter: the upstream gets one valid length or chunks, the host,
// path and credential that the filter set, and nothing that says who called.
func TestEditedRequest(t *testing.T) {
	t.Parallel()
	a := newUpstream(t, "a")
	const body = `{"model":"public-name"}`
	tests := []struct{ name, edited string }{
		{"grows", `{"model":"a-much-longer-upstream-name","stream_options":{"include_usage":true}}`},
		{"shrinks", `{"model":"x"}`},
		{"keeps its length", `{"model":"PUBLIC-NAME"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newGateway(t, gateway(map[string]string{"a": a.URL}), &processor{maxBody: 1 << 20,
				decide: func(map[string]string, []byte) verdict {
					return verdict{cluster: "deployment/a", body: []byte(tt.edited), headers: map[string]string{
						":authority": "api.example.com", ":path": "/openai/v1/chat?api-version=1", "x-api-key": "provider",
					}}
				}}, envoy.Options{})
			for _, chunked := range []bool{false, true} {
				r := post(t, e.URL("/v1/chat/completions"), []byte(body), chunked)
				r.Header.Set("authorization", "Bearer sk-tg-client")
				r.Header.Set("x-forwarded-for", "203.0.113.9")
				r.Header.Set("x-envoy-upstream-rq-timeout-ms", "1")
				r.Header.Set("x-request-id", "mine")
				response, answer := do(t, http.DefaultClient, r)
				checkEdited(t, decodeSeen(t, response, answer), tt.edited)
			}
		})
	}
}

func checkEdited(t *testing.T, got seen, body string) {
	t.Helper()
	if got.Sum != sum([]byte(body)) {
		t.Errorf("the upstream got %d bytes, not the edited body of %d", got.Size, len(body))
	}
	if got.Length != -1 && got.Length != got.Size {
		t.Errorf("content-length %d for %d bytes", got.Length, got.Size)
	}
	if got.Host != "api.example.com" || got.Path != "/openai/v1/chat?api-version=1" {
		t.Errorf("the upstream was asked for %s%s", got.Host, got.Path)
	}
	if got.Header.Get("x-api-key") != "provider" || got.Header.Get("x-request-id") != "mine" {
		t.Errorf("headers lack what was set: %v", got.Header)
	}
	if source := got.Header.Get(sourceHeader); !strings.HasPrefix(source, "127.0.0.1:") {
		t.Errorf("the filter was told that the client is %q, by the client's own word", source)
	}
	for name := range got.Header {
		lower := strings.ToLower(name)
		if lower == "authorization" || lower == envoy.ClusterHeader ||
			strings.HasPrefix(lower, "x-envoy") || strings.HasPrefix(lower, "x-forwarded") {
			t.Errorf("the upstream got %s: %s", name, got.Header.Get(name))
		}
	}
}

// TestEventsPassAtOnce is the latency of E-58: the upstream sends an event only once the client has the one before, so
// an event that anything holds back is the last.
func TestEventsPassAtOnce(t *testing.T) {
	t.Parallel()
	received := make(chan struct{}, events)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("content-type", "text/event-stream")
		for i := range events {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-received:
			case <-time.After(10 * time.Second):
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	p := &processor{decide: toA, maxBody: 1 << 20}
	e := newGateway(t, gateway(map[string]string{"a": server.URL}), p, envoy.Options{})
	response, err := http.DefaultClient.Do(post(t, e.URL("/sse"), []byte(`{"stream":true}`), false))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var got []string
	for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
		if event, ok := strings.CutPrefix(scanner.Text(), "data: "); ok {
			got = append(got, event)
			received <- struct{}{}
		}
	}
	if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if p.pieces.Load() < events || p.ends.Load() != 1 {
		t.Errorf("the filter saw %d pieces and %d ends of %d events", p.pieces.Load(), p.ends.Load(), events)
	}
}

// TestFailsClosed wants no request to pass when the filter does not answer, and a client to be able to read why.
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	a := newUpstream(t, "a")
	bootstrap, err := envoy.Bootstrap(gateway(map[string]string{"a": a.URL}),
		envoy.BootstrapOptions{Processor: envoy.Upstream{Address: "unix:" + socketDir(t) + "/nobody.sock"}})
	if err != nil {
		t.Fatal(err)
	}
	e := envoytest.Start(t, bootstrap)
	r := post(t, e.URL("/v1/chat/completions"), []byte(`{}`), false)
	r.Header.Set(envoy.ClusterHeader, "deployment/a")
	response, body := do(t, http.DefaultClient, r)
	checkUnavailable(t, response, body)
	if a.requests.Load() != 0 {
		t.Error("the request reached the upstream ungoverned")
	}
}

// TestUpgradeReachesTheFilter is E-66: a WebSocket handshake is the filter's to refuse, at once and in JSON.
func TestUpgradeReachesTheFilter(t *testing.T) {
	t.Parallel()
	a := newUpstream(t, "a")
	e := newGateway(t, gateway(map[string]string{"a": a.URL}), &processor{decide: toA, maxBody: 1 << 20}, envoy.Options{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL("/v1/realtime?model=gpt-4o-realtime"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"connection": "Upgrade", "upgrade": "websocket",
		"sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
	} {
		r.Header.Set(name, value)
	}
	response, body := do(t, http.DefaultClient, r)
	if response.StatusCode != http.StatusForbidden || string(body) != noUpgrade {
		t.Errorf("got %d %s, want the filter's refusal", response.StatusCode, body)
	}
}

// TestAccessLog wants a line for a request, without the credentials that came with it.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	a := newUpstream(t, "a")
	file := filepath.Join(t.TempDir(), "access.log")
	e := newGateway(t, gateway(map[string]string{"a": a.URL}), &processor{decide: toA, maxBody: 1 << 20},
		envoy.Options{AccessLog: file})
	r := post(t, e.URL("/v1beta/models/gemini:generateContent?key=sk-tg-in-the-query"), []byte(`{}`), false)
	r.Header.Set("authorization", "Bearer sk-tg-in-a-header")
	response, body := do(t, http.DefaultClient, r)
	decodeSeen(t, response, body)
	e.Stop() // writes what it has not yet written
	line, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var entry map[string]any
	if err := json.Unmarshal(line, &entry); err != nil {
		t.Fatalf("line %q: %v", line, err)
	}
	if entry["path"] != "/v1beta/models/gemini:generateContent" || entry["status"] != 200.0 ||
		entry["upstream_cluster"] != "deployment/a" {
		t.Errorf("line %s", line)
	}
	if bytes.Contains(line, []byte("sk-tg-")) {
		t.Errorf("line %s holds a credential", line)
	}
}

// TestManySlowCalls is E-62: more calls in flight than Envoy's default circuit breakers allow.
func TestManySlowCalls(t *testing.T) {
	t.Parallel()
	const calls = 1200
	// No call is answered before all have arrived, so that all are in flight at once.
	var arrived atomic.Int64
	all := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if arrived.Add(1) == calls {
			close(all)
		}
		select {
		case <-all:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	e := newGateway(t, gateway(map[string]string{"a": server.URL}), &processor{decide: toA, maxBody: 1 << 20}, envoy.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	statuses := make(chan string, calls)
	for range calls {
		go func() {
			response, err := client.Do(post(t, e.URL("/"), []byte(`{}`), false).WithContext(ctx))
			if err != nil {
				statuses <- err.Error()
				return
			}
			_ = response.Body.Close()
			statuses <- response.Status
		}()
	}
	count := make(map[string]int)
	for range calls {
		status := <-statuses
		if count[status]++; status != "200 OK" {
			cancel() // one missing call keeps all others waiting
		}
	}
	if count["200 OK"] != calls {
		t.Errorf("of %d calls: %v", calls, count)
	}
	checkNoOverflow(t, e)
}

// checkNoOverflow wants no circuit breaker to have opened.
func checkNoOverflow(t *testing.T, e *envoytest.Envoy) {
	t.Helper()
	stats, err := e.Admin(t.Context(), http.MethodGet, "/stats?filter=^cluster\\..*overflow$")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(stats, []byte("cluster.tollgate.upstream_rq_pending_overflow")) {
		t.Fatalf("no statistic of the ext_proc cluster in %s", stats)
	}
	for line := range strings.Lines(string(stats)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); value != "0" {
			t.Errorf("%s is %s, want 0", name, value)
		}
	}
}

// TestSlowUpstreamHoldsOneBodyACall is the bound on Envoy's memory of E-61: bodies that their upstream does not read
// are there once, with the buffers around them. ext_proc does not make tollgate wait for the upstream.
func TestSlowUpstreamHoldsOneBodyACall(t *testing.T) {
	t.Parallel()
	const calls, bodySize, bound = 4, 31 << 20, 34 << 20 // bound: bytes a call
	var begun sync.WaitGroup
	begun.Add(calls)
	read := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun.Done()
		<-read
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(server.Close)
	e := newGateway(t, gateway(map[string]string{"a": server.URL}), &processor{decide: toA, maxBody: 32 << 20}, envoy.Options{})
	before := allocated(t, e)
	var done sync.WaitGroup
	for range calls {
		done.Go(func() {
			response, err := http.DefaultClient.Do(post(t, e.URL("/"), make([]byte, bodySize), false))
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("status %s", response.Status)
			}
		})
	}
	begun.Wait()
	time.Sleep(500 * time.Millisecond) // what Envoy would take more, it takes by now
	held := allocated(t, e) - before
	close(read)
	done.Wait()
	if held > calls*bound {
		t.Errorf("envoy holds %d bytes for %d calls, more than %d each", held, calls, bound)
	}
}

// allocated is Envoy's memory in use, in bytes.
func allocated(t *testing.T, e *envoytest.Envoy) int64 {
	t.Helper()
	body, err := e.Admin(t.Context(), http.MethodGet, "/memory")
	if err != nil {
		t.Fatal(err)
	}
	var memory struct {
		Allocated int64 `json:"allocated,string"`
	}
	if err := json.Unmarshal(body, &memory); err != nil {
		t.Fatal(err)
	}
	return memory.Allocated
}
