package envoy

import (
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// maxConnections is how many client connections Envoy holds at once. Each costs a file descriptor and some buffers;
// without a limit Envoy warns at every start, and a flood of connections ends in its death.
const maxConnections = 50_000

// BootstrapOptions say where Envoy finds tollgate, and how it is operated.
type BootstrapOptions struct {
	Options

	// Processor is the ext_proc server; required.
	Processor Upstream
	// XDS is the xDS server. With an Address, Envoy asks it for listener, routes and clusters; without, all of them are
	// in the bootstrap, which then stays as it is until Envoy is started anew.
	XDS Upstream
	// Admin is where Envoy's admin interface listens: "unix:/path" or a loopback "host:port"; "" turns it off.
	Admin string
	// Node is Envoy's name in tollgate's log; "" means "tollgate".
	Node string
}

// Bootstrap is the file that Envoy starts with, YAML whose comments explain each default that is changed. It holds
// no credential.
func Bootstrap(cfg *config.Config, o BootstrapOptions) ([]byte, error) {
	b, err := bootstrap(cfg, o)
	if err != nil {
		return nil, err
	}
	header := staticHeader
	if o.XDS.Address != "" {
		header = dynamicHeader
	}
	return annotatedYAML(b, header+commonHeader)
}

func bootstrap(cfg *config.Config, o BootstrapOptions) (*bootstrapv3.Bootstrap, error) {
	processor, err := Processor(o.Processor)
	if err != nil {
		return nil, err
	}
	name := o.Node
	if name == "" {
		name = "tollgate"
	}
	var p packer
	b := &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: name, Cluster: "tollgate"},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Clusters: []*clusterv3.Cluster{processor},
		},
		OverloadManager: connectionLimit(&p),
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	if b.Admin, err = admin(o.Admin); err != nil {
		return nil, err
	}
	if o.XDS.Address == "" {
		return b, addResources(b.StaticResources, cfg, o.Options)
	}
	xds, err := grpcCluster(XDSCluster, o.XDS)
	if err != nil {
		return nil, fmt.Errorf("address of the xDS server: %w", err)
	}
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, xds)
	b.DynamicResources = dynamicResources()
	return b, nil
}

// addResources puts listener, routes and clusters where Envoy has no one to ask for them.
func addResources(to *bootstrapv3.Bootstrap_StaticResources, cfg *config.Config, o Options) error {
	routes, err := Routes(cfg)
	if err != nil {
		return err
	}
	l, err := staticListener(cfg, o, routes)
	if err != nil {
		return err
	}
	clusters, err := Clusters(cfg, o)
	if err != nil {
		return err
	}
	to.Listeners = []*listenerv3.Listener{l}
	to.Clusters = append(to.Clusters, clusters...)
	return nil
}

// dynamicResources asks for everything over one stream, and only for what has changed.
func dynamicResources() *bootstrapv3.Bootstrap_DynamicResources {
	return &bootstrapv3.Bootstrap_DynamicResources{
		AdsConfig: &corev3.ApiConfigSource{
			ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: XDSCluster},
			}}},
		},
		CdsConfig: adsSource(),
		LdsConfig: adsSource(),
	}
}

func admin(address string) (*bootstrapv3.Admin, error) {
	if address == "" {
		return nil, nil
	}
	parsed, err := bindAddress(address)
	if err != nil {
		return nil, fmt.Errorf("admin address: %w", err)
	}
	if socket := parsed.GetSocketAddress(); socket != nil && !isLoopback(socket.Address) {
		return nil, fmt.Errorf("admin address: %q is not a loopback address: whoever reaches the admin interface can stop Envoy", address)
	}
	return &bootstrapv3.Admin{Address: parsed, IgnoreGlobalConnLimit: true}, nil
}

func connectionLimit(p *packer) *overloadv3.OverloadManager {
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name: "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{
			TypedConfig: p.pack(&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: maxConnections}),
		},
	}}}
}
