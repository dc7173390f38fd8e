package envoy

import (
	"context"
	"log/slog"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// refusals logs what an Envoy refuses (a NACK): it goes on with what it had, and nobody else would say so. The other
// callbacks of go-control-plane's servers have nothing to do.
type refusals struct {
	log *slog.Logger
}

// OnStreamRequest sees an acknowledgement or refusal of a state of the world.
func (r refusals) OnStreamRequest(_ int64, request *discoveryv3.DiscoveryRequest) error {
	r.note(request.GetNode(), request.GetTypeUrl(), request.GetErrorDetail())
	return nil
}

// OnStreamDeltaRequest sees an acknowledgement or refusal of a difference.
func (r refusals) OnStreamDeltaRequest(_ int64, request *discoveryv3.DeltaDiscoveryRequest) error {
	r.note(request.GetNode(), request.GetTypeUrl(), request.GetErrorDetail())
	return nil
}

func (r refusals) note(node *corev3.Node, typeURL string, detail *status.Status) {
	if detail == nil {
		return
	}
	r.log.Error("envoy refused a configuration and keeps its last one",
		"node", node.GetId(), "type", typeURL, "error", detail.GetMessage())
}

// OnStreamOpen does nothing.
func (refusals) OnStreamOpen(context.Context, int64, string) error { return nil }

// OnStreamClosed does nothing.
func (refusals) OnStreamClosed(int64, *corev3.Node) {}

// OnStreamResponse does nothing.
func (refusals) OnStreamResponse(context.Context, int64, *discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse) {
}

// OnDeltaStreamOpen does nothing.
func (refusals) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnDeltaStreamClosed does nothing.
func (refusals) OnDeltaStreamClosed(int64, *corev3.Node) {}

// OnStreamDeltaResponse does nothing.
func (refusals) OnStreamDeltaResponse(int64, *discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse) {
}
