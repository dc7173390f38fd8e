package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
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
	mux.HandleFunc("GET /debug/trips", a.debugTrips)
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
