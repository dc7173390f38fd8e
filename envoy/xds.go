package envoy

import (
	"context"
	"fmt"
	"log/slog"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltav3 "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	sotwv3 "github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// Server is the xDS server: it gives every Envoy that asks, whatever its name, the resources of the configuration
// of the last Update, over an aggregated stream (ADS), whole or by difference. Its methods may be called from any
// goroutine.
type Server struct {
	options Options
	cache   cachev3.SnapshotCache
	streams streams
	cancel  context.CancelFunc
}

// NewServer makes a server that has nothing to give until the first Update. Call Close when done.
func NewServer(log *slog.Logger, o Options) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	// Ordered by ADS: clusters before the routes that name them.
	cache := cachev3.NewSnapshotCache(true, everyNode{}, nil)
	return &Server{
		options: o,
		cache:   cache,
		streams: streams{
			whole: sotwv3.NewServer(ctx, cache, refusals{log}),
			delta: deltav3.NewServer(ctx, cache, refusals{log}),
		},
		cancel: cancel,
	}
}

// Register adds the server to a gRPC server, which should be made with ServerOptions.
func (s *Server) Register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s.streams)
}

// Update makes cfg what Envoys get, and pushes what differs to those that are connected: nothing, when Envoy's part of
// the configuration is as it was. It returns once the change is
// queued, not once they have applied it. A configuration that cannot be rendered is an error, and the last one stays.
func (s *Server) Update(cfg *config.Config) error {
	next, err := snapshot(cfg, s.options)
	if err != nil {
		return fmt.Errorf("render %s for envoy: %w", cfg.File, err)
	}
	if err := s.cache.SetSnapshot(context.Background(), everyNode{}.ID(nil), next); err != nil {
		return fmt.Errorf("publish %s to envoy: %w", cfg.File, err)
	}
	return nil
}

// Close ends the streams of all Envoys, without which the gRPC server's GracefulStop would wait for them for ever.
func (s *Server) Close() {
	s.cancel()
}

// streams serves the two forms of ADS. (go-control-plane's own server has every other service too, and needs modules
// for them.)
type streams struct {
	whole sotwv3.Server
	delta deltav3.Server
}

// StreamAggregatedResources sends all resources of a type at each change (state of the world).
func (s streams) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.whole.StreamHandler(stream, resourcev3.AnyType)
}

// DeltaAggregatedResources sends the resources that have changed.
func (s streams) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.delta.DeltaStreamHandler(stream, resourcev3.AnyType)
}

// everyNode gives all Envoys one snapshot: there is one gateway, with any number of replicas.
type everyNode struct{}

// ID is the snapshot's name, whoever asks.
func (everyNode) ID(*corev3.Node) string {
	return "gateway"
}
