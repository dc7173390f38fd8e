package envoytest_test

import (
	"net/http"
	"testing"

	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
)

// answering is an Envoy that answers every request itself.
const answering = `
static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: l
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: 204}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
`

func TestStart(t *testing.T) {
	t.Parallel()
	envoytest.Validate(t, []byte(answering))
	e := envoytest.Start(t, []byte(answering))
	for range 3 {
		response, err := http.Get(e.URL("/"))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNoContent {
			t.Errorf("status %s", response.Status)
		}
	}
	if got := e.Stat("http.l.downstream_rq_2xx"); got != 3 {
		t.Errorf("envoy counted %d answers, want 3", got)
	}
	if got := e.Stat("http.l.no_such_thing"); got != 0 {
		t.Errorf("a statistic that does not exist is %d", got)
	}
}
