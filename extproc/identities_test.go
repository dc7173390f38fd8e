package extproc_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tollgate-proxy/tollgate/extproc"
	"github.com/tollgate-proxy/tollgate/extproc/envoysim"
	"github.com/tollgate-proxy/tollgate/governance"
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// TestKeyOfRedis: a key that the process has never seen is served, listed models and refused through the filter's own
// messages, with a body and without one.
func TestKeyOfRedis(t *testing.T) {
	t.Parallel()
	backend, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := governance.New(governance.Options{Config: configuration(), Counters: backend, Identities: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	extproc.New(gate, nil).Register(server)
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := gate.Close(ctx); err != nil {
			t.Error(err)
		}
		_ = backend.Close()
	})
	client := extprocv3.NewExternalProcessorClient(conn)
	publisher := &identity.Publisher{Backend: backend, Prefix: "tg"}
	put := func(id, secret string, revision int64, blocked bool) {
		t.Helper()
		sum := sha256.Sum256([]byte(secret))
		row := &identity.Row{Kind: identity.KindKey, ID: id, Revision: revision, Home: "k:" + id, Secret: hex.EncodeToString(sum[:])}
		row.Data = &config.Key{ID: id, SecretSHA256: row.Secret, Blocked: blocked}
		if err := publisher.Put(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "sk-a", 1, false)
	put("b", "sk-b", 1, false)
	put("c", "sk-c", 1, true)
	ask := func(what, method, path, secret, content string, status int, want string) {
		t.Helper()
		a, err := envoysim.Exchange(t.Context(), client, envoysim.Request{
			Method: method, Path: path, Body: []byte(content), Header: [][2]string{{"authorization", "Bearer " + secret}},
		}, ok)
		if err != nil || a.Status != status || !strings.Contains(string(a.Body()), want) {
			t.Errorf("%s: %+v, %v, want status %d and %s", what, a, err, status, want)
		}
	}
	ask("cold", "POST", "/v1/chat/completions", "sk-a", body, 200, `"content":"hi"`)
	ask("warm", "POST", "/v1/chat/completions", "sk-a", body, 200, `"content":"hi"`)
	ask("cold, without a body", "GET", "/v1/models", "sk-b", "", 200, `"id":"m"`)
	ask("warm, without a body", "GET", "/v1/models", "sk-b", "", 200, `"id":"m"`)
	ask("cold and blocked", "POST", "/v1/chat/completions", "sk-c", body, 401, "blocked")
	ask("cold, blocked, without a body", "GET", "/v1/models", "sk-c", "", 401, "blocked")
	ask("nowhere", "POST", "/v1/chat/completions", "sk-d", body, 401, "invalid_api_key")
	ask("nowhere, on a path of nobody's", "POST", "/v9/odd", "sk-e", body, 401, "invalid_api_key")
	ask("cold, on a path of nobody's", "POST", "/v9/odd", "sk-a", body, 404, "unknown_endpoint")
	ask("a body that cannot be read", "POST", "/v1/chat/completions", "sk-b", "{", 400, "invalid_request_error")

	// A key that is none is refused as soon as that is known: the rest of the body is not waited for.
	stream, err := client.Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := call(body)
	request.Header = [][2]string{{"authorization", "Bearer sk-f"}}
	if err := stream.Send(envoysim.RequestHeaders(request)); err != nil {
		t.Fatal(err)
	}
	replies := make(chan *extprocv3.ProcessingResponse)
	go func() {
		defer close(replies)
		if m, err := stream.Recv(); err == nil {
			replies <- m
		}
	}()
	var refused *extprocv3.ProcessingResponse
	for n := 0; refused == nil && n < 2000; n++ {
		if err := stream.Send(envoysim.RequestBody([]byte("{"), false)); err != nil {
			t.Fatal(err)
		}
		select {
		case refused = <-replies:
		case <-time.After(5 * time.Millisecond):
		}
	}
	if code := refused.GetImmediateResponse().GetStatus().GetCode(); code != 401 {
		t.Errorf("in the middle of the body: %v, want 401", refused)
	}
	_ = stream.CloseSend()

	put("a", "sk-a", 2, true)
	ask("blocked meanwhile", "POST", "/v1/chat/completions", "sk-a", body, 401, "blocked")
}
