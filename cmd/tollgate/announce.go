package main

import (
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/tollgate-proxy/tollgate/governance/ledger"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// announce says what runs where. The curl line comes first: it is what a new user wants.
func (l *local) announce(w io.Writer) {
	key, model := l.secret, "demo"
	if l.demo == nil {
		key, model = "$TOLLGATE_KEY", firstModel(l)
	}
	gateway := reachable(l.gateway)
	fmt.Fprintf(w, "curl http://%s/v1/chat/completions -H 'Content-Type: application/json' -H %s -d '{\"model\": %q, \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n\n",
		gateway, quoteHeader(key), model)
	fmt.Fprintf(w, "  gateway   http://%s\n", gateway)
	if l.demo != nil {
		fmt.Fprintf(w, "  demo key  %s\n", l.secret)
		fmt.Fprintf(w, "  provider  the built-in demo at %s: no model runs, the usage is real\n", l.demoAt)
	}
	store := "in this process: nothing is kept across restarts"
	if !l.app.backend.Embedded() {
		store = "redis"
	}
	fmt.Fprintf(w, "  store     %s\n", store)
	fmt.Fprintf(w, "  health    http://%s/readyz and /metrics\n", reachable(l.app.bound["health"]))
	fmt.Fprintf(w, "  trips     http://%s/debug/trips\n", reachable(l.app.bound["admin"]))
	fmt.Fprintf(w, "  envoy     process %d\n\n", l.envoy.PID())
	fmt.Fprintln(w, "Ctrl-C stops everything.")
}

// quoteHeader is the credential's header in quotes: single ones for a key, double ones for a variable the shell is to
// fill in.
func quoteHeader(key string) string {
	if strings.HasPrefix(key, "$") {
		return `"Authorization: Bearer ` + key + `"`
	}
	return "'Authorization: Bearer " + key + "'"
}

// firstModel is a model of the configuration that can be named in an example.
func firstModel(l *local) string {
	for _, m := range l.cfg.Models {
		if !strings.Contains(m.Name, "*") {
			return m.Name
		}
	}
	return "MODEL"
}

// reachable is an address as a client on this machine writes it.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// summarize says what was spent.
func summarize(w io.Writer, s ledger.Sum) {
	fmt.Fprintf(w, "settled %d requests (%d from the cache), %d input and %d output tokens\n",
		s.Requests, s.CacheHits, s.InputTokens, s.OutputTokens)
	fmt.Fprintf(w, "spent $%s\n", refusal.FormatUSD(s.Nano))
}
