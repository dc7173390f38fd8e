package envoy_test

import (
	"go/build"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	dnsclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/governance/config"
)

// shape is what differs between clusters.
type shape struct {
	Host      string
	Port      uint32
	TLS       bool
	Discovery string
}

func TestClusters(t *testing.T) {
	t.Parallel()
	clusters, err := envoy.Clusters(everyShape(), envoy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]shape{
		"deployment/openai-eu":  {"api.openai.com", 443, true, "one logical host"},
		"deployment/local vllm": {"127.0.0.1", 8000, false, "static"},
		"deployment/six":        {"::1", 8001, false, "static"},
		"deployment/in-cluster": {"vllm.models.svc.cluster.local", 8000, false, "each address"},
		"deployment/tls-ip":     {"10.0.0.1", 8443, true, "static"},
	}
	got := make(map[string]shape)
	for _, c := range clusters {
		address := c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
		got[c.Name] = shape{address.Address, address.GetPortValue(), c.TransportSocket != nil, discovery(t, c)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
}

func discovery(t *testing.T, c *clusterv3.Cluster) string {
	t.Helper()
	if c.GetClusterType() == nil {
		return strings.ToLower(c.GetType().String())
	}
	var dns dnsclusterv3.DnsCluster
	if err := c.GetClusterType().GetTypedConfig().UnmarshalTo(&dns); err != nil {
		t.Fatal(err)
	}
	if dns.AllAddressesInSingleEndpoint {
		return "one logical host"
	}
	return "each address"
}

// TestErrorsNameTheField wants what cannot be rendered refused with the key to look at.
func TestErrorsNameTheField(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		edit func(*config.Config, *envoy.BootstrapOptions)
		want []string
	}{
		{"gateway by name", func(c *config.Config, _ *envoy.BootstrapOptions) { c.Gateway.Address = "gateway.local:8080" },
			[]string{"gateway.address", "gateway.local:8080"}},
		{"gateway without a port", func(c *config.Config, _ *envoy.BootstrapOptions) { c.Gateway.Address = "127.0.0.1" },
			[]string{"gateway.address", "host:port"}},
		{"gateway at port 70000", func(c *config.Config, _ *envoy.BootstrapOptions) { c.Gateway.Address = "127.0.0.1:70000" },
			[]string{"gateway.address", "70000"}},
		{"another scheme", func(c *config.Config, _ *envoy.BootstrapOptions) { c.Models[0].Deployments[0].URL = "ftp://a" },
			[]string{`model "gpt-4o-mini"`, `deployment "a"`, "url", "ftp"}},
		{"a password in the URL", func(c *config.Config, _ *envoy.BootstrapOptions) {
			c.Models[0].Deployments[0].URL = "https://u:hunter2@a"
		}, []string{`deployment "a"`, "url", "password"}},
		{"a name that no header can carry", func(c *config.Config, _ *envoy.BootstrapOptions) {
			c.Models[0].Deployments[0].Name = "a\nx-admin: 1"
		}, []string{"deployment", "control character"}},
		{"a name used twice", func(c *config.Config, _ *envoy.BootstrapOptions) {
			c.Models = append(c.Models, config.Model{Name: "other", Deployments: c.Models[0].Deployments})
		}, []string{`deployment "a"`, `"gpt-4o-mini"`, `"other"`}},
		{"routes of one's own", func(c *config.Config, _ *envoy.BootstrapOptions) { c.Routing = "envoy" },
			[]string{"routing: envoy"}},
		{"no ext_proc server", func(_ *config.Config, o *envoy.BootstrapOptions) { o.Processor.Address = "" },
			[]string{"ext_proc", "host:port"}},
		{"a socket path too long", func(_ *config.Config, o *envoy.BootstrapOptions) {
			o.Processor.Address = "unix:/" + strings.Repeat("x", 120)
		}, []string{"ext_proc", "at most 103 bytes"}},
		{"TLS that verifies nothing", func(_ *config.Config, o *envoy.BootstrapOptions) { o.Processor.TLS = new(envoy.ClientTLS) },
			[]string{"ext_proc", "CA file"}},
		{"half a client certificate", func(_ *config.Config, o *envoy.BootstrapOptions) {
			o.Processor.TLS = &envoy.ClientTLS{CAFile: "ca.crt", CertFile: "tls.crt"}
		}, []string{"ext_proc", "key"}},
		{"TLS to a nameless server", func(_ *config.Config, o *envoy.BootstrapOptions) {
			o.Processor = envoy.Upstream{Address: "unix:/run/tollgate.sock", TLS: &envoy.ClientTLS{CAFile: "ca.crt"}}
		}, []string{"ext_proc", "server name"}},
		{"an xDS server nowhere", func(_ *config.Config, o *envoy.BootstrapOptions) { o.XDS.Address = "xds" },
			[]string{"xDS", "host:port"}},
		{"an admin interface for all", func(_ *config.Config, o *envoy.BootstrapOptions) { o.Admin = ":9905" },
			[]string{"admin", "loopback"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := gateway(map[string]string{"a": "https://a.example/v1"})
			options := envoy.BootstrapOptions{Processor: envoy.Upstream{Address: "127.0.0.1:9901"}}
			tt.edit(cfg, &options)
			_, err := envoy.Bootstrap(cfg, options)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q holds a password", err)
			}
		})
	}
}

// TestImports keeps doc.go true.
func TestImports(t *testing.T) {
	t.Parallel()
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pkg.Imports {
		if strings.Contains(path, "tollgate-proxy") && !strings.HasSuffix(path, "/governance/config") {
			t.Errorf("the package imports %s", path)
		}
	}
}
