package main

import (
	"context"
	"html/template"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// healthHandler serves /healthz, /readyz and /metrics. No identities show in them.
func (a *app) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := a.ready(r.Context()); err != "" {
			http.Error(w, err, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	return mux
}

// ready says why no requests should come, or "".
func (a *app) ready(ctx context.Context) string {
	if a.draining.Load() {
		return "draining"
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := a.gate.Ready(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// debugHandler serves /debug/trips, to this machine alone.
func (a *app) debugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/trips", func(w http.ResponseWriter, r *http.Request) {
		trips := a.tracer.Trips()
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			w.Header().Set("content-type", "text/html; charset=utf-8")
			if err := tripsPage.Execute(w, trips); err != nil {
				a.log.Error("trips cannot be written", "error", err)
			}
			return
		}
		w.Header().Set("content-type", "application/json")
		if err := json.MarshalWrite(w, struct {
			Trips []pipeline.Trip `json:"trips"`
		}{trips}, jsontext.WithIndent("  ")); err != nil {
			a.log.Error("trips cannot be written", "error", err)
		}
	})
	return localOnly(mux)
}

// localOnly refuses callers from other machines: nobody is named here yet, so nobody from outside is let in. A Host
// header that is no loopback name is refused too, against pages that rebind their name.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err == nil && !net.ParseIP(host).IsLoopback() || !isLoopback(hostPort(r.Host)) {
			http.Error(w, "only from this machine", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostPort adds a port to a Host header that has none.
func hostPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "0")
}

var tripsPage = template.Must(template.New("trips").Parse(`<!doctype html><meta charset="utf-8"><title>tollgate: trips to Redis</title>
<style>body{font:14px system-ui;margin:2em}table{border-collapse:collapse}td,th{text-align:left;padding:.3em .8em;border-bottom:1px solid #ddd;vertical-align:top}</style>
<h1>Trips to Redis, the newest first</h1>
<p>Somebody waits for those of kind <b>request</b> and <b>again</b>; nobody for <b>deferred</b>.</p>
<table><tr><th>#<th>at<th>kind<th>took<th>caller<th>commands</tr>
{{range .}}<tr><td>{{.N}}<td>{{.At.Format "15:04:05.000"}}<td>{{.Kind}}<td>{{.Duration}}<td>{{.Caller}}<td>
{{range .Commands}}<b>{{.Owner}}</b> {{.Name}} {{.Key}} {{.Error}}<br>{{end}}{{.Error}}</tr>{{end}}
</table>
`))
