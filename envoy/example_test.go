package envoy_test

import (
	"fmt"
	"strings"

	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/governance/config"
)

// The bootstrap of an Envoy that asks tollgate's xDS server explains itself.
func ExampleBootstrap() {
	cfg := &config.Config{Gateway: config.Gateway{Address: "127.0.0.1:8080"}}
	bootstrap, err := envoy.Bootstrap(cfg, envoy.BootstrapOptions{
		Processor: envoy.Upstream{Address: "127.0.0.1:9901"},
		XDS:       envoy.Upstream{Address: "127.0.0.1:9903"},
		Admin:     "127.0.0.1:9905",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(string(bootstrap)) {
		if strings.HasPrefix(line, "#") {
			fmt.Print(line)
		}
	}
	// Output:
	// # Envoy for tollgate: all but the way to tollgate itself comes from tollgate's xDS server.
	// # It holds no credentials: tollgate puts them on each request. Without tollgate's answer no request passes.
	// # Comments mark what is not Envoy's default.
	// # Envoy has no limit of its own; each connection costs a file descriptor and buffers.
}

// The filter routes a request by naming its deployment's cluster in ClusterHeader.
func ExampleDeploymentCluster() {
	fmt.Printf("%s: %s\n", envoy.ClusterHeader, envoy.DeploymentCluster("openai-eu"))
	// Output: x-tollgate-cluster: deployment/openai-eu
}
