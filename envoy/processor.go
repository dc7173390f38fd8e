package envoy

import (
	"cmp"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	// keepaliveInterval and keepaliveTimeout find a peer that is gone without a FIN while its streams are silent.
	keepaliveInterval = 30 * time.Second
	keepaliveTimeout  = 10 * time.Second
	// processorStreams is how many requests share one HTTP/2 connection to tollgate; the next one opens another
	// connection. grpc-go serves each connection with one reader and one writer, so a few are better than one.
	processorStreams = 1024
	// processorWindow and processorConnWindow are what tollgate may have under way to Envoy of one call and of all on a
	// connection: enough for the pieces of a body to follow each other without a pause, and no call in another's way.
	processorWindow     = 1 << 20
	processorConnWindow = 64 << 20
)

// Upstream is where Envoy reaches one of tollgate's gRPC servers.
type Upstream struct {
	// Address is "host:port" or "unix:/path".
	Address string
	// TLS is nil for plaintext.
	TLS *ClientTLS
}

// ClientTLS is Envoy's side of TLS with tollgate. The files are on Envoy's machine.
type ClientTLS struct {
	CAFile     string // verifies tollgate's certificate; required
	ServerName string // must be in it; "" takes the host of the address
	CertFile   string // shown to a tollgate that has tls.client_ca; "" with KeyFile ""
	KeyFile    string
}

// Processor is the cluster of tollgate's ext_proc server. The server at u must be made with ServerOptions.
func Processor(u Upstream) (*clusterv3.Cluster, error) {
	c, err := grpcCluster(ProcessorCluster, u)
	if err != nil {
		return nil, fmt.Errorf("address of the ext_proc server: %w", err)
	}
	return c, nil
}

// ServerOptions are what a grpc-go server needs to serve an Envoy configured by this package: leave to send a ping
// each keepaliveInterval, where grpc-go's default of five minutes ends the connection with "too_many_pings", and
// messages of up to maxBody bytes (a buffered response comes in one), where the default is 4 MiB.
func ServerOptions(maxBody int64) []grpc.ServerOption {
	const envelope = 1 << 20 // headers and attributes around a body
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveInterval / 3, PermitWithoutStream: true,
		}),
		grpc.MaxRecvMsgSize(int(maxBody) + envelope),
	}
}

// grpcCluster is a cluster of one gRPC server.
func grpcCluster(name string, u Upstream) (*clusterv3.Cluster, error) {
	address, err := parseAddress(u.Address)
	if err != nil {
		return nil, err
	}
	var p packer
	c := &clusterv3.Cluster{
		Name:            name,
		ConnectTimeout:  duration(connectTimeout),
		LoadAssignment:  loadAssignment(name, address),
		CircuitBreakers: breakers(),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptionsName: p.pack(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
				ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
						Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
							MaxConcurrentStreams:        uint32Value(processorStreams),
							InitialStreamWindowSize:     uint32Value(processorWindow),
							InitialConnectionWindowSize: uint32Value(processorConnWindow),
							ConnectionKeepalive:         http2Keepalive(),
						},
					},
				},
			},
		})},
	}
	host := address.GetSocketAddress().GetAddress()
	setDiscovery(c, host, false, &p)
	if u.TLS != nil {
		context, err := clientTLS(*u.TLS, host)
		if err != nil {
			return nil, err
		}
		setTLS(c, context, &p)
	}
	return c, p.err()
}

// clientTLS is the context of TLS with a server of tollgate's at host, which is "" for a Unix socket.
func clientTLS(t ClientTLS, host string) (*tlsv3.UpstreamTlsContext, error) {
	if t.CAFile == "" {
		return nil, fmt.Errorf("TLS without a CA file to verify the server with")
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, fmt.Errorf("TLS with a client certificate needs both its file and its key's file")
	}
	name := cmp.Or(t.ServerName, host)
	if name == "" {
		return nil, fmt.Errorf("TLS over a Unix socket needs a server name")
	}
	context := upstreamTLS(name, t.CAFile)
	context.CommonTlsContext.AlpnProtocols = []string{"h2"} // grpc-go refuses a connection that did not negotiate it
	if t.CertFile != "" {
		context.CommonTlsContext.TlsCertificates = []*tlsv3.TlsCertificate{{
			CertificateChain: file(t.CertFile), PrivateKey: file(t.KeyFile),
		}}
	}
	return context, nil
}
