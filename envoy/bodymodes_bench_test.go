package envoy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
)

// bodyModes are the pairs worth comparing: request and response.
var bodyModes = []struct{ request, response string }{
	{"NONE", "NONE"}, // headers only: what an ext_proc costs anyway
	{"BUFFERED", "BUFFERED"},
	{"BUFFERED", "STREAMED"},
	{"STREAMED", "STREAMED"},
	{"FULL_DUPLEX_STREAMED", "STREAMED"},
	{"FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED"},
}

// workloads are what clients of models do.
var workloads = []struct {
	name, path string
	size       int // bytes of the request
	parallel   bool
}{
	{"chat alone", "/json", 2 << 10, false},
	{"chat", "/json", 2 << 10, true},
	{"image", "/json", 1 << 20, true},
	{"stream", "/burst", 2 << 10, true},
}

// BenchmarkBodyModes compares ext_proc's body modes in one run, with the body whole before the request is let go, as
// tollgate needs it. Compare only what one run says; -benchtime 0.5s keeps it below a minute.
func BenchmarkBodyModes(b *testing.B) {
	server := httptest.NewServer(benchUpstream())
	b.Cleanup(server.Close)
	for _, mode := range bodyModes {
		b.Run(mode.request+"+"+mode.response, func(b *testing.B) {
			e := benchGateway(b, server.URL, mode.request, mode.response)
			for _, w := range workloads {
				b.Run(strings.ReplaceAll(w.name, " ", "-"), func(b *testing.B) {
					benchWorkload(b, e, e.URL(w.path), bytes.Repeat([]byte("x"), w.size), w.parallel)
				})
			}
		})
	}
}

func benchWorkload(b *testing.B, e *envoytest.Envoy, url string, body []byte, parallel bool) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	b.SetParallelism(8)
	before := cpuTime(b, e.PID())
	b.ResetTimer()
	if parallel {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				benchRequest(b, client, url, body)
			}
		})
	} else {
		for range b.N {
			benchRequest(b, client, url, body)
		}
	}
	b.StopTimer()
	used := cpuTime(b, e.PID()) - before
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "envoy-us/op")
}

func benchRequest(b *testing.B, client *http.Client, url string, body []byte) {
	response, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		b.Errorf("status %d, error %v", response.StatusCode, err)
	}
}

// benchUpstream answers with an answer of 20 tokens, or streams 200 events.
func benchUpstream() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/json", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("content-type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"`+strings.Repeat("word ", 20)+`"}}],"usage":{"total_tokens":20}}`)
	})
	mux.HandleFunc("/burst", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("content-type", "text/event-stream")
		for i := range 200 {
			_, _ = fmt.Fprintf(w, "data: {\"i\":%d,\"delta\":\"word\"}\n\n", i)
			w.(http.Flusher).Flush()
		}
	})
	return mux
}

// benchGateway is the gateway with other modes, and the buffers that those which hold a body need.
func benchGateway(b *testing.B, upstreamURL, request, response string) *envoytest.Envoy {
	b.Helper()
	p := &processor{decide: toA, maxBody: 32 << 20}
	bootstrap, err := envoy.Bootstrap(gateway(map[string]string{"a": upstreamURL}), envoy.BootstrapOptions{Processor: p.serve(b)})
	if err != nil {
		b.Fatal(err)
	}
	text := string(bootstrap)
	replace := func(old, replacement string) {
		if strings.Count(text, old) != 1 {
			b.Fatalf("the bootstrap does not hold %q once", old)
		}
		text = strings.Replace(text, old, replacement, 1)
	}
	replace("request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: "+request)
	replace("response_body_mode: STREAMED", "response_body_mode: "+response)
	if request != "FULL_DUPLEX_STREAMED" {
		replace("per_connection_buffer_limit_bytes: 1048576", "per_connection_buffer_limit_bytes: 34603008")
	}
	if request == "STREAMED" {
		const line = "stat_prefix: tollgate"
		indent := strings.Repeat(" ", indentOf(text, line))
		replace(line, line+"\n"+indent+"send_body_without_waiting_for_header_response: true")
	}
	return envoytest.Start(b, []byte(text))
}

// indentOf is the indentation of the line that holds s.
func indentOf(text, s string) int {
	at := strings.Index(text, s)
	return at - strings.LastIndexByte(text[:at], '\n') - 1
}

// cpuTime is what a process has used, from /proc: fields 14 and 15 of stat are ticks of 10 ms (proc_pid_stat(5)).
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	fields := bytes.Fields(rest)
	var ticks int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(string(field))
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
