package envoy

import (
	"fmt"
	"time"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

const (
	// headersTimeout bounds the time in which a client sends its headers, as nothing else bounds a connection that
	// has not made a request yet.
	headersTimeout = 30 * time.Second
	// streamWindow and connectionWindow are what one HTTP/2 stream and connection of a client may send ahead. Envoy's
	// defaults of 16 and 24 MiB are memory that clients could claim without a valid key.
	streamWindow     = 1 << 20
	connectionWindow = 8 << 20
	// connectionBuffer is what Envoy holds of one connection before it stops reading, and with it the size of the
	// pieces in which a body reaches the filter: within grpc-go's 4 MiB a message. It bounds no body, they stream
	// through; at 33 MiB a body of 31 MiB came in messages of 23 MB.
	connectionBuffer = 1 << 20
)

// Listener is the gateway's listener. Its routes, RoutesName, come by ADS, so that no update of theirs closes a
// connection.
func Listener(cfg *config.Config, o Options) (*listenerv3.Listener, error) {
	return listener(cfg, o, &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			ConfigSource:    adsSource(),
			RouteConfigName: RoutesName,
		}},
	})
}

// staticListener is Listener with its routes inside.
func staticListener(cfg *config.Config, o Options, routes *routev3.RouteConfiguration) (*listenerv3.Listener, error) {
	return listener(cfg, o, &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes},
	})
}

func listener(cfg *config.Config, o Options, manager *hcmv3.HttpConnectionManager) (*listenerv3.Listener, error) {
	address, err := bindAddress(cfg.Gateway.Address)
	if err != nil {
		return nil, fmt.Errorf("gateway.address: %w", err)
	}
	var p packer
	connectionManager(manager, o, &p)
	l := &listenerv3.Listener{
		Name:                          ListenerName,
		Address:                       address,
		PerConnectionBufferLimitBytes: uint32Value(connectionBuffer),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: p.pack(manager)},
		}}}},
	}
	return l, p.err()
}

// connectionManager fills in all but the routes.
func connectionManager(m *hcmv3.HttpConnectionManager, o Options, p *packer) {
	m.StatPrefix = "gateway"
	m.CodecType = hcmv3.HttpConnectionManager_AUTO
	m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{
		InitialStreamWindowSize:     uint32Value(streamWindow),
		InitialConnectionWindowSize: uint32Value(connectionWindow),
	}
	m.RequestTimeout = duration(0) // an upload takes as long as the client's line needs
	m.RequestHeadersTimeout = duration(headersTimeout)
	m.StreamIdleTimeout = duration(idleTimeout)
	// The address of the connection is the client's: an x-forwarded-for that it sent is not believed, and its
	// x-envoy-* headers, which could set timeouts and retries, are dropped.
	m.UseRemoteAddress = yes()
	m.SkipXffAppend = true
	m.InternalAddressConfig = &hcmv3.HttpConnectionManager_InternalAddressConfig{
		CidrRanges: []*corev3.CidrRange{{AddressPrefix: "255.255.255.255", PrefixLen: uint32Value(32)}}, // nobody
	}
	m.PreserveExternalRequestId = true // a label that the client finds again at its provider
	m.EarlyHeaderMutationExtensions = []*corev3.TypedExtensionConfig{{
		Name: "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: p.pack(&earlyv3.HeaderMutation{Mutations: []*mutationv3.HeaderMutation{{
			Action: &mutationv3.HeaderMutation_Remove{Remove: ClusterHeader},
		}}}),
	}}
	// A WebSocket handshake must reach the filter, which refuses or meters it; without this Envoy refuses all itself.
	m.UpgradeConfigs = []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}}
	m.HttpFilters = []*hcmv3.HttpFilter{
		{Name: FilterName, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: p.pack(Filter())}},
		{Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{
			TypedConfig: p.pack(&routerv3.Router{SuppressEnvoyHeaders: true}),
		}},
	}
	m.LocalReplyConfig = localReplies(p)
	m.AccessLog = accessLog(o.AccessLog, p)
}

func adsSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}
