package envoy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

const (
	connectTimeout = 5 * time.Second
	// breakerLimit replaces Envoy's circuit breakers of 1,024 connections and requests, which calls of minutes reach
	// with few users; limits are tollgate's business (llm-d/llm-d#1582). It is the documented ceiling: the next call
	// gets 503.
	breakerLimit = 100_000
	// httpsIdle closes an unused connection before the load balancers in front of providers do (60 s and more), so that
	// no request is written to a connection that is just being closed.
	httpsIdle = 50 * time.Second
	// httpIdle does the same for local model servers: uvicorn, which vLLM runs on, closes after 5 s.
	httpIdle = 4 * time.Second

	httpOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	tlsSocketName   = "envoy.transport_sockets.tls"
)

// Clusters is one cluster per deployment, named DeploymentCluster, in the order of the names.
func Clusters(cfg *config.Config, o Options) ([]*clusterv3.Cluster, error) {
	var clusters []*clusterv3.Cluster
	seen := make(map[string]string) // deployment to model
	for _, m := range cfg.Models {
		for _, d := range m.Deployments {
			if other, ok := seen[d.Name]; ok {
				return nil, fmt.Errorf("deployment %q is in model %q and in model %q", d.Name, other, m.Name)
			}
			seen[d.Name] = m.Name
			c, err := deploymentCluster(d, o)
			if err != nil {
				return nil, fmt.Errorf("model %q: %w", m.Name, err)
			}
			clusters = append(clusters, c)
		}
	}
	slices.SortFunc(clusters, func(a, b *clusterv3.Cluster) int { return strings.Compare(a.Name, b.Name) })
	return clusters, nil
}

func deploymentCluster(d config.Deployment, o Options) (*clusterv3.Cluster, error) {
	if err := checkName(d); err != nil {
		return nil, err
	}
	e, err := parseEndpoint(d.URL)
	if err != nil {
		return nil, fmt.Errorf("deployment %q: url: %w", d.Name, err)
	}
	var p packer
	name := DeploymentCluster(d.Name)
	c := &clusterv3.Cluster{
		Name:            name,
		ConnectTimeout:  duration(connectTimeout),
		LbPolicy:        clusterv3.Cluster_LEAST_REQUEST,
		LoadAssignment:  loadAssignment(name, socketAddress(e.host, e.port)),
		CircuitBreakers: breakers(),
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{
			// A model may think for minutes without a byte; NAT gateways forget a silent connection after 350 s.
			TcpKeepalive: &corev3.TcpKeepalive{
				KeepaliveTime: uint32Value(60), KeepaliveInterval: uint32Value(10), KeepaliveProbes: uint32Value(3),
			},
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptionsName: p.pack(deploymentHTTP(e))},
	}
	setDiscovery(c, e.host, e.tls, &p)
	if e.tls {
		setTLS(c, upstreamTLS(e.host, o.caFile()), &p)
	}
	if err := p.err(); err != nil {
		return nil, fmt.Errorf("deployment %q: %w", d.Name, err)
	}
	return c, nil
}

// setDiscovery says how a host becomes addresses. A provider (logical) is one host whose answers in DNS rotate:
// connections stay when they do, and IPv6 and IPv4 are raced. Any other name is a service in the same network: each of
// its addresses is a host to balance over.
func setDiscovery(c *clusterv3.Cluster, host string, logical bool, p *packer) {
	if host == "" || isIP(host) { // a Unix socket, or an address
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		return
	}
	dns := &dnsclusterv3.DnsCluster{RespectDnsTtl: true, DnsLookupFamily: dnsv3.DnsLookupFamily_V4_PREFERRED}
	if logical {
		dns.AllAddressesInSingleEndpoint, dns.DnsLookupFamily = true, dnsv3.DnsLookupFamily_ALL
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.cluster.dns", TypedConfig: p.pack(dns),
	}}
}

// deploymentHTTP takes HTTP/2 where TLS negotiates it, and HTTP/1.1 in the clear, which every local model server
// speaks.
func deploymentHTTP(e endpoint) *httpv3.HttpProtocolOptions {
	if !e.tls {
		return &httpv3.HttpProtocolOptions{
			CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: duration(httpIdle)},
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
				ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
						HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
					},
				},
			},
		}
	}
	return &httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: duration(httpsIdle)},
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_AutoConfig{
			AutoConfig: &httpv3.HttpProtocolOptions_AutoHttpConfig{
				HttpProtocolOptions:  &corev3.Http1ProtocolOptions{},
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{ConnectionKeepalive: http2Keepalive()},
			},
		},
	}
}

func http2Keepalive() *corev3.KeepaliveSettings {
	return &corev3.KeepaliveSettings{Interval: duration(keepaliveInterval), Timeout: duration(keepaliveTimeout)}
}

// upstreamTLS verifies the certificate against the bundle and against the host; Envoy does neither by default.
func upstreamTLS(host, caFile string) *tlsv3.UpstreamTlsContext {
	san := &tlsv3.SubjectAltNameMatcher{
		SanType: tlsv3.SubjectAltNameMatcher_DNS,
		Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: host}},
	}
	sni := host
	if isIP(host) {
		san.SanType, sni = tlsv3.SubjectAltNameMatcher_IP_ADDRESS, "" // RFC 6066: SNI holds names only
	}
	return &tlsv3.UpstreamTlsContext{
		Sni: sni,
		CommonTlsContext: &tlsv3.CommonTlsContext{
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
				ValidationContext: &tlsv3.CertificateValidationContext{
					TrustedCa:                 file(caFile),
					MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{san},
				},
			},
		},
	}
}

func setTLS(c *clusterv3.Cluster, context *tlsv3.UpstreamTlsContext, p *packer) {
	c.TransportSocket = &corev3.TransportSocket{
		Name:       tlsSocketName,
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: p.pack(context)},
	}
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

func breakers() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     uint32Value(breakerLimit),
		MaxPendingRequests: uint32Value(breakerLimit),
		MaxRequests:        uint32Value(breakerLimit),
	}}}
}

func loadAssignment(cluster string, address *corev3.Address) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
		}}}},
	}
}
