package envoy

import (
	"errors"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

const (
	// idleTimeout ends a request on which nothing has moved in either direction. Reasoning models think for many
	// minutes before their first token, and the client's own timeout is the one that means something; this one only
	// frees what a client that vanished without a FIN has left.
	idleTimeout = time.Hour
	// flushTimeout ends a response that the upstream has finished and the client no longer reads.
	flushTimeout = 5 * time.Minute
)

// errOwnRoutes is what `routing: envoy` gets: the routes are in an Envoy configuration that tollgate does not write.
var errOwnRoutes = errors.New("routing: envoy leaves the routes to your own Envoy, so tollgate has none to program: " +
	"attach the filter to that Envoy, or set routing: tollgate")

// Routes is the route table: every request goes to the cluster its ClusterHeader names, and one without it nowhere
// (503), because no default is right for a request that the filter has not priced.
func Routes(cfg *config.Config) (*routev3.RouteConfiguration, error) {
	if cfg.Routing == "envoy" {
		return nil, errOwnRoutes
	}
	return &routev3.RouteConfiguration{
		Name: RoutesName,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    "gateway",
			Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Name:  "by-deployment",
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: ClusterHeader},
					Timeout:          duration(0),
					IdleTimeout:      duration(idleTimeout),
					FlushTimeout:     duration(flushTimeout),
				}},
			}},
			// Who the client is and which route it takes is no business of a provider's.
			RequestHeadersToRemove: []string{
				ClusterHeader, "x-forwarded-for", "x-forwarded-proto", "x-envoy-external-address",
			},
		}},
		// Envoy checks no cluster here: the header names it later, and a deployment may arrive with the next update.
	}, nil
}
