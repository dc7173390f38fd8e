package envoy_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
	"github.com/tollgate-proxy/tollgate/governance/config"
)

// newServer is an xDS server with a first configuration, and its address.
func newServer(t *testing.T, cfg *config.Config) (*envoy.Server, envoy.Upstream) {
	t.Helper()
	s := envoy.NewServer(slog.New(slog.DiscardHandler), envoy.Options{})
	t.Cleanup(s.Close)
	if err := s.Update(cfg); err != nil {
		t.Fatal(err)
	}
	address, _ := serveGRPC(t, s.Register)
	return s, address
}

// TestADS wants an Envoy that knows nothing but the xDS server to serve, and an update to reach it without touching a
// stream that is under way, also one whose deployment is gone from the configuration.
func TestADS(t *testing.T) {
	t.Parallel()
	a, b := newUpstream(t, "a"), newUpstream(t, "b")
	onlyA := gateway(map[string]string{"a": a.URL})
	server, address := newServer(t, onlyA)
	p := &processor{decide: byModel, maxBody: 1 << 20}
	bootstrap, err := envoy.Bootstrap(onlyA, envoy.BootstrapOptions{Processor: p.serve(t), XDS: address})
	if err != nil {
		t.Fatal(err)
	}
	e := envoytest.Start(t, bootstrap)
	response, body := do(t, http.DefaultClient, post(t, e.URL("/v1/chat/completions"), []byte(`{"model":"a"}`), false))
	if got := decodeSeen(t, response, body); got.Upstream != "a" {
		t.Errorf("upstream %q, want a", got.Upstream)
	}

	stream, err := http.DefaultClient.Do(post(t, e.URL("/sse"), []byte(`{"model":"a"}`), false))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	if _, err := bufio.NewReader(io.LimitReader(stream.Body, 1)).ReadByte(); err != nil {
		t.Fatal(err) // the stream has begun
	}
	if err := server.Update(gateway(map[string]string{"b": b.URL})); err != nil {
		t.Fatal(err)
	}
	awaitUpstream(t, e, "b")
	rest, err := io.ReadAll(stream.Body)
	if err != nil || !bytes.HasSuffix(rest, []byte("data: 4\n\n")) {
		t.Errorf("the update cut a stream: %v after %q", err, rest)
	}
	if got := e.Stat("listener_manager.listener_modified"); got != 0 {
		t.Errorf("an update of the models replaced the listener %d times", got)
	}
}

// awaitUpstream asks for a model until its upstream answers.
func awaitUpstream(t *testing.T, e *envoytest.Envoy, model string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		response, _ := do(t, http.DefaultClient, post(t, e.URL("/"), []byte(`{"model":"`+model+`"}`), false))
		if response.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("model %s is not served: %s", model, response.Status)
		}
	}
}

// adsClient opens a state-of-the-world stream and subscribes to clusters.
func adsClient(t *testing.T, address envoy.Upstream) discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
	t.Helper()
	conn, err := grpc.NewClient(address.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resourcev3.ClusterType}); err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestUnchangedConfigurationPushesNothing wants a push for a change and none without, state of the world.
func TestUnchangedConfigurationPushesNothing(t *testing.T) {
	t.Parallel()
	urls := map[string]string{"a": "https://a.example", "b": "https://b.example"}
	server, address := newServer(t, gateway(urls))
	stream := adsClient(t, address)
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: resourcev3.ClusterType, VersionInfo: first.VersionInfo, ResponseNonce: first.Nonce,
	}); err != nil {
		t.Fatal(err)
	}
	pushed := make(chan *discoveryv3.DiscoveryResponse, 1)
	go func() {
		if r, err := stream.Recv(); err == nil {
			pushed <- r
		}
	}()
	same := gateway(urls)
	same.Models[0].Deployments[0].Weight = 7 // not Envoy's business
	if err := server.Update(same); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-pushed:
		t.Fatalf("version %s was pushed over %s without a change", r.VersionInfo, first.VersionInfo)
	case <-time.After(200 * time.Millisecond):
	}
	urls["c"] = "https://c.example"
	if err := server.Update(gateway(urls)); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-pushed:
		if len(r.Resources) != 3 || r.VersionInfo == first.VersionInfo {
			t.Errorf("pushed %d clusters of version %s", len(r.Resources), r.VersionInfo)
		}
	case <-time.After(5 * time.Second):
		t.Error("a new deployment was not pushed")
	}
}

// TestUpdateKeepsTheLastGoodConfiguration wants a configuration that cannot be rendered to change nothing.
func TestUpdateKeepsTheLastGoodConfiguration(t *testing.T) {
	t.Parallel()
	server, address := newServer(t, gateway(map[string]string{"a": "https://a.example"}))
	if err := server.Update(gateway(map[string]string{"a": "ftp://a.example"})); err == nil {
		t.Fatal("no error for a URL that Envoy cannot use")
	}
	first, err := adsClient(t, address).Recv()
	if err != nil || len(first.Resources) != 1 {
		t.Errorf("got %v, error %v", first, err)
	}
}

// TestCloseEndsStreams wants a graceful stop of the gRPC server not to wait for Envoys.
func TestCloseEndsStreams(t *testing.T) {
	t.Parallel()
	server := envoy.NewServer(slog.New(slog.DiscardHandler), envoy.Options{})
	if err := server.Update(gateway(map[string]string{"a": "https://a.example"})); err != nil {
		t.Fatal(err)
	}
	address, g := serveGRPC(t, server.Register)
	stream := adsClient(t, address)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	server.Close()
	stopped := make(chan struct{})
	go func() {
		g.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(5 * time.Second):
		t.Error("GracefulStop waits for a stream that Close should have ended")
	}
}

// TestRefusalIsLogged wants what an Envoy refuses in the log.
func TestRefusalIsLogged(t *testing.T) {
	t.Parallel()
	records := make(chan string, 1)
	server := envoy.NewServer(slog.New(slog.NewTextHandler(lineWriter(records), nil)), envoy.Options{})
	t.Cleanup(server.Close)
	broken := gateway(nil)
	broken.Gateway.Address = "192.0.2.1:80" // TEST-NET-1: no machine has it
	if err := server.Update(broken); err != nil {
		t.Fatal(err)
	}
	address, _ := serveGRPC(t, server.Register)
	bootstrap, err := envoy.Bootstrap(broken, envoy.BootstrapOptions{Processor: address, XDS: address, Node: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	envoytest.Binary(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	go func() {
		defer cancel()
		select {
		case line := <-records:
			for _, want := range []string{"node=laptop", "192.0.2.1", "listener.v3.Listener"} {
				if !bytes.Contains([]byte(line), []byte(want)) {
					t.Errorf("log %s lacks %s", line, want)
				}
			}
		case <-ctx.Done():
			t.Error("nothing was logged")
		}
	}()
	if local, err := envoy.Start(ctx, envoy.LocalOptions{Bootstrap: bootstrap}); err == nil {
		local.Stop()
		t.Error("an Envoy without a listener counts as started")
	}
	<-ctx.Done()
}

// lineWriter sends the first line written.
type lineWriter chan string

// Write never blocks.
func (w lineWriter) Write(b []byte) (int, error) {
	select {
	case w <- string(b):
	default:
	}
	return len(b), nil
}
