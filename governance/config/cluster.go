package config

// ClusterHeader is the request header whose value is the Envoy cluster that serves the request. The filter sets it to
// ClusterName of the deployment it chose; Envoy removes a client's own before the filter runs, and the filter's before
// the upstream sees the request.
const ClusterHeader = "x-tollgate-cluster"

// ClusterName is the name of the Envoy cluster of a deployment.
func ClusterName(deployment string) string { return "deployment/" + deployment }
