package envoy

import (
	"fmt"
	"unicode/utf8"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// ClusterHeader is the header by which the filter names the cluster of the deployment it chose.
const ClusterHeader = config.ClusterHeader

// The names of the resources; they show in Envoy's statistics and in config_dump.
const (
	ListenerName     = "gateway"
	RoutesName       = "gateway"
	ProcessorCluster = "tollgate"
	XDSCluster       = "tollgate-xds"
)

// DeploymentCluster is the name of the cluster of a deployment.
func DeploymentCluster(name string) string {
	return config.ClusterName(name)
}

// checkName refuses a deployment name that could not travel in ClusterHeader.
func checkName(d config.Deployment) error {
	if d.Name == "" {
		return fmt.Errorf("a deployment of %s has no name", d.URL)
	}
	if !utf8.ValidString(d.Name) {
		return fmt.Errorf("deployment %q: name is not UTF-8", d.Name)
	}
	for _, r := range d.Name {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("deployment %q: name has a control character, which a header cannot carry", d.Name)
		}
	}
	return nil
}
