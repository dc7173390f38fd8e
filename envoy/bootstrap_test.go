package envoy_test

import (
	"strings"
	"testing"

	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
	"github.com/tollgate-proxy/tollgate/governance/config"
)

const secret = "sk-the-provider-key"

// gateway is a configuration with one model whose deployments have the given URLs, by name.
func gateway(urls map[string]string) *config.Config {
	m := config.Model{Name: "gpt-4o-mini"}
	for name, url := range urls {
		m.Deployments = append(m.Deployments, config.Deployment{
			Name: name, URL: url, Dialect: "openai", Kind: config.CredentialSecret, Credential: secret,
		})
	}
	return &config.Config{
		File:     "tollgate.yaml",
		Gateway:  config.Gateway{Address: "127.0.0.1:0"},
		Routing:  "tollgate",
		Models:   []config.Model{m},
		Defaults: config.Defaults{MaxBody: 32 << 20},
	}
}

// everyShape has a deployment of each kind of URL.
func everyShape() *config.Config {
	return gateway(map[string]string{
		"openai-eu":  "https://api.openai.com/v1",
		"local vllm": "http://127.0.0.1:8000/v1",
		"six":        "http://[::1]:8001",
		"in-cluster": "http://vllm.models.svc.cluster.local:8000/v1",
		"tls-ip":     "https://10.0.0.1:8443/v1",
	})
}

func TestBootstrapIsValidForEnvoy(t *testing.T) {
	t.Parallel()
	_, caFile := newTLSUpstream(t, "a")
	tls := &envoy.ClientTLS{CAFile: caFile, ServerName: "tollgate.internal"}
	tests := []struct {
		name    string
		options envoy.BootstrapOptions
	}{
		{"static over TCP", envoy.BootstrapOptions{Processor: envoy.Upstream{Address: "127.0.0.1:9901"}, Admin: "127.0.0.1:9905"}},
		{"static over a Unix socket", envoy.BootstrapOptions{Processor: envoy.Upstream{Address: "unix:/run/tollgate.sock"}}},
		{"static by name", envoy.BootstrapOptions{Processor: envoy.Upstream{Address: "tollgate.tollgate.svc:9901"}}},
		{"with an access log", envoy.BootstrapOptions{
			Processor: envoy.Upstream{Address: "127.0.0.1:9901"}, Options: envoy.Options{AccessLog: "/dev/null"},
		}},
		{"ads", envoy.BootstrapOptions{
			Processor: envoy.Upstream{Address: "unix:/run/a/extproc.sock"}, XDS: envoy.Upstream{Address: "unix:/run/a/xds.sock"},
			Admin: "unix:/tmp/admin.sock", Node: "laptop",
		}},
		{"ads over TLS", envoy.BootstrapOptions{
			Processor: envoy.Upstream{Address: "10.0.0.1:9901", TLS: tls}, XDS: envoy.Upstream{Address: "tollgate:9903", TLS: tls},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, err := envoy.Bootstrap(everyShape(), tt.options)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(out), secret) {
				t.Errorf("the bootstrap holds a provider's credential:\n%s", out)
			}
			envoytest.Validate(t, out)
		})
	}
}

// TestStaticBootstrapSetsWhatMatters is E-82: the defaults that do not fit LLM traffic are set, in so many words.
func TestStaticBootstrapSetsWhatMatters(t *testing.T) {
	t.Parallel()
	out, err := envoy.Bootstrap(everyShape(), envoy.BootstrapOptions{Processor: envoy.Upstream{Address: "127.0.0.1:9901"}})
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	for _, want := range []string{
		"message_timeout: 10s", "code: ServiceUnavailable", "request_body_mode: FULL_DUPLEX_STREAMED",
		"response_body_mode: STREAMED", "request_trailer_mode: SEND", "- source.address", "- xds.cluster_name",
		"- upstream.address", "timeout: 0s", "stream_idle_timeout: 3600s", "idle_timeout: 3600s", "max_requests: 100000",
		"per_connection_buffer_limit_bytes: 1048576", "http2_protocol_options:", "internal_address_config:", "cluster_header: x-tollgate-cluster",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the bootstrap lacks %q", want)
		}
	}
	if strings.Contains(text, "failure_mode_allow: true") {
		t.Error("the bootstrap lets requests pass without the filter")
	}
	if filter, router := strings.Index(text, "name: "+envoy.FilterName), strings.Index(text, "name: envoy.filters.http.router"); filter < 0 || filter > router {
		t.Error("the filter is not before the router")
	}
}
