package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
)

// separate is a tollgate in a process of its own, asked like a replica: its memory can be told from the test's.
type separate struct {
	*replica
	cmd  *exec.Cmd
	http *http.Client
}

// startSeparate is startReplica with `tollgate serve` in a process of its own. It waits for Redis longer than any load
// of the test keeps Redis from answering.
func startSeparate(t *testing.T, s *stores, p *providertest.Provider, text string) *separate {
	t.Helper()
	dir, err := os.MkdirTemp("", "tg") // short: a Unix socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "extproc.sock")
	text = fmt.Sprintf("version: 1\nlisten: {extproc: 'unix:%s', health: '127.0.0.1:0', admin: '127.0.0.1:0'}\n", socket) +
		fmt.Sprintf("gateway: {address: '127.0.0.1:0'}\nredis: {url: '%s', deadline: 10s}\n", s.Proxy.URL()) +
		strings.ReplaceAll(text, "PROVIDER", p.URL())
	file := filepath.Join(dir, "tollgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &separate{replica: &replica{t: t, Log: new(syncBuffer)}, http: client(t)}
	r.cmd = exec.Command(binary(t), "serve", "--config", file)
	r.cmd.Stderr = r.Log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Kill()
		if t.Failed() {
			t.Logf("log of tollgate serve:\n%s", r.Log)
		}
	})
	waitFor(t, "tollgate serve to listen", func() bool {
		c, err := net.Dial("unix", socket)
		return err == nil && c.Close() == nil
	})
	boot, err := envoy.Bootstrap(loadText(t, text), envoy.BootstrapOptions{Processor: envoy.Upstream{Address: "unix:" + socket}})
	if err != nil {
		t.Fatal(err)
	}
	r.Envoy = envoytest.Start(t, boot)
	return r
}

// Kill is kill -9.
func (r *separate) Kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait() // it was killed: the error says so
}

// memory is a field of the process' status in bytes: VmRSS is what it holds, VmHWM the most it ever held.
func (r *separate) memory(field string) int64 {
	r.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		r.t.Fatalf("no %s in %s", field, status)
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return n << 10
}

// waitFor waits for something to become true, 20 s at most.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}

// TestE62ManySlowCalls wants calls in flight, first more than Envoy's and then more than HTTP/2's usual limits, all to be
// served. None is answered before all have arrived, so that all are in flight at once.
func TestE62ManySlowCalls(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	r := startSeparate(t, s, p, t1+`keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 1000, per: day}], rpm: 100000, parallel: 5000}}]`)
	settled := 0
	for _, calls := range []int{1150, 3000} {
		p.Reset()
		all, arrived := make(chan struct{}), atomic.Int64{}
		ok := providertest.Chat(providertest.Usage{Completion: 1})
		p.Script(func(h providertest.Hit) providertest.Reply {
			if arrived.Add(1) == int64(calls) {
				close(all)
			}
			select {
			case <-all:
			case <-time.After(90 * time.Second): // the test has failed by then
			}
			return ok(h)
		})
		count := r.slowCalls(calls)
		if count["200"] != calls {
			t.Fatalf("of %d calls: %v", calls, count)
		}
		if p.Peak() != calls {
			t.Errorf("%d calls in flight at once, want %d", p.Peak(), calls)
		}
		settled += calls
		waitFor(t, "the slots to be free", func() bool {
			return s.Redis.Client().ZCard(t.Context(), "tg:{k:k}:l:key:k").Val() == 0
		})
		if got := s.field("tg:{k:k}:b:key:k", "uday.s"); got != strconv.Itoa(settled*10_000) {
			t.Errorf("%d calls of $0.00001 cost %s nano-dollars", settled, got)
		}
	}
	checkNoOverflow(t, r.Envoy)
	if most := r.memory("VmHWM"); most > 600<<20 {
		t.Errorf("tollgate held %d MiB for 3,000 calls in flight", most>>20)
	}
}

// slowCalls makes calls at the same time and counts what came back.
func (r *separate) slowCalls(calls int) map[string]int {
	c := &http.Client{Transport: &http.Transport{}, Timeout: 100 * time.Second} // no limit on connections
	defer c.CloseIdleConnections()
	results := make(chan string, calls)
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	for i := range calls {
		if i%20 == 19 {
			time.Sleep(25 * time.Millisecond) // they are slow calls, not a rush
		}
		req := r.newRequest(ctx, "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(ask(1)))
		go func() {
			status, err := statusOf(c, req)
			if err != nil {
				results <- err.Error()
				return
			}
			results <- strconv.Itoa(status)
		}()
	}
	count := map[string]int{}
	for range calls {
		result := <-results
		if count[result]++; result != "200" {
			cancel() // one that is missing keeps all others waiting
		}
	}
	return count
}

// checkNoOverflow wants no circuit breaker to have opened.
func checkNoOverflow(t *testing.T, e *envoytest.Envoy) {
	t.Helper()
	stats, err := e.Admin(t.Context(), http.MethodGet, "/stats?filter=^cluster\\..*overflow$")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(stats), "cluster.tollgate.upstream_rq_pending_overflow") {
		t.Fatalf("no statistic of the ext_proc cluster in %s", stats)
	}
	for line := range strings.Lines(string(stats)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); value != "0" {
			t.Errorf("%s is %s, want 0", name, value)
		}
	}
}

// digests is a provider that keeps of each body no more than its length and its hash.
type digests struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newDigests(t *testing.T) *digests {
	t.Helper()
	d := &digests{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		if err != nil {
			return
		}
		d.mu.Lock()
		d.seen = append(d.seen, fmt.Sprintf("%d %s", n, hex.EncodeToString(h.Sum(nil))))
		d.mu.Unlock()
		w.Header().Set("content-type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	}))
	t.Cleanup(d.Close)
	return d
}

// take are the digests since the last call.
func (d *digests) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := d.seen
	d.seen = nil
	return seen
}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return fmt.Sprintf("%d %s", len(body), hex.EncodeToString(sum[:]))
}

// image is a chat body of exactly size bytes, most of it one base64 image.
func image(size int) string {
	head := `{"model":"t1","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`
	const tail = `"}}]}]}`
	return head + strings.Repeat("A", size-len(head)-len(tail)) + tail
}

// TestE61LargeBodies sends bodies of every size that some default of Envoy's or grpc-go's refuses.
func TestE61LargeBodies(t *testing.T) {
	t.Parallel()
	s, d := newStores(t), newDigests(t)
	r := startSeparate(t, s, providertest.New(t), strings.ReplaceAll(t1, "PROVIDER", d.URL)+
		`keys: [{id: k, secret: sk-test-a, limits: {budgets: [{usd: 100, per: day}], rpm: 1000, tpm: 1000000000, parallel: 20}}]`)
	const kib, mib = 1 << 10, 1 << 20
	passed := 0
	for _, size := range []int{33 * kib, 1126 * kib, 3994 * kib, 4199 * kib, 12 * mib, 31 * mib, 32 * mib} {
		body := image(size)
		for _, chunked := range []bool{false, true} {
			got := r.post(body, chunked)
			if seen := d.take(); got.Status != 200 || len(seen) != 1 || seen[0] != digest(body) {
				t.Errorf("%d KiB, chunked %t: %d %.300s; the provider got %q, want %q", size/kib, chunked, got.Status, got.Body, seen, digest(body))
			}
			passed++
		}
	}
	s.settled(passed)
	for _, size := range []int{32*mib + 1, 33 * mib} {
		for _, chunked := range []bool{false, true} {
			got := r.post(image(size), chunked)
			checkRefusal(t, got, refusalWanted{status: 413, kind: "invalid_request_error"})
		}
	}
	r.parallelBodies(d, image(12*mib))
	passed += 10
	s.settled(passed)
	if seen := d.take(); len(seen) != 0 {
		t.Errorf("a body that was refused reached the provider: %q", seen)
	}
	if live := s.Redis.Client().ZCard(t.Context(), "tg:{k:k}:l:key:k").Val(); live != 0 {
		t.Errorf("%d slots are still taken", live)
	}
	if v := s.field("tg:{k:k}:b:key:k", "uday.s"); v != strconv.Itoa(passed*10_000) {
		t.Errorf("%d calls of $0.00001 cost %s nano-dollars", passed, v)
	}
	// Ten bodies of 12 MiB, each growing by doubling while its pieces are still in gRPC's buffers.
	if most := r.memory("VmHWM"); most > 800*mib {
		t.Errorf("tollgate held %d MiB", most/mib)
	}
}

// post posts a chat body, with its length or chunked.
func (r *separate) post(body string, chunked bool) answered {
	r.t.Helper()
	req := r.newRequest(r.t.Context(), "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(body))
	if chunked {
		req.ContentLength = -1
	}
	// A refusal arrives before the body has left: "expect" makes sure that it is read.
	req.Header.Set("expect", "100-continue")
	return r.do(req)
}

func (r *separate) parallelBodies(d *digests, body string) {
	r.t.Helper()
	spread(10, func(int) {
		req := r.newRequest(r.t.Context(), "POST", "/v1/chat/completions", "sk-test-a", strings.NewReader(body))
		if status, err := statusOf(r.http, req); err != nil || status != 200 {
			r.t.Errorf("one of ten in parallel: %d, %v", status, err)
		}
	})
	want, seen := digest(body), d.take()
	if len(seen) != 10 {
		r.t.Errorf("%d bodies arrived, want 10", len(seen))
	}
	for _, got := range seen {
		if got != want {
			r.t.Errorf("a body arrived as %s, want %s", got, want)
		}
	}
}
