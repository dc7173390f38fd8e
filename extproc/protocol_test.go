package extproc_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tollgate-proxy/tollgate/extproc"
	"github.com/tollgate-proxy/tollgate/extproc/envoysim"
	"github.com/tollgate-proxy/tollgate/governance"
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

const secret = "sk-protocol"

// rig is the service on the embedded store.
type rig struct {
	*testing.T
	client  extprocv3.ExternalProcessorClient
	backend *pipeline.Backend
	gate    *governance.Gate
}

func newRig(t *testing.T) *rig {
	t.Helper()
	backend, err := pipeline.OpenEmbedded(pipeline.EmbeddedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := governance.New(governance.Options{Config: configuration(), Counters: backend})
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
	return &rig{T: t, client: extprocv3.NewExternalProcessorClient(conn), backend: backend, gate: gate}
}

// configuration has one key that may have one request in flight, and a budget.
func configuration() *config.Config {
	cfg := config.Default()
	price := int64(1_000_000_000)
	cfg.Models = []config.Model{{Name: "m", Strategy: "usage", Deployments: []config.Deployment{{
		Name: "d", URL: "http://127.0.0.1:1/v1", Dialect: "openai", Weight: 1, Order: 1, StreamUsage: true,
		Price: &config.Price{Input: &price, Output: &price},
	}}}}
	sum := sha256.Sum256([]byte(secret))
	cfg.Keys = []config.Key{{ID: "k", SecretSHA256: hex.EncodeToString(sum[:]), Scope: config.Scope{Limits: config.Limits{
		Budgets:  []config.Budget{{Unit: config.USD, Amount: 1_000_000_000, Per: config.Lifetime}},
		Parallel: &config.Rate{Limit: 1},
	}}}}
	return cfg
}

func call(body string) envoysim.Request {
	return envoysim.Request{
		Method: "POST", Path: "/v1/chat/completions", Body: []byte(body), Header: [][2]string{{"authorization", "Bearer " + secret}},
	}
}

const body = `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`

func ok(*envoysim.Request) *envoysim.Answer {
	return &envoysim.Answer{Status: 200, Header: [][2]string{{"content-type", "application/json"}}, Pieces: [][]byte{
		[]byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":5,"total_tokens":10}}`),
	}}
}

// settled waits until the key's only slot is free and nothing is reserved.
func (r *rig) settled(what string) {
	r.Helper()
	var live, reserved any
	for range 200 {
		batch := r.backend.Batch("test")
		slots := pipeline.Declare(batch, "test", pipeline.Raw, "ZCARD", "tg:{k:k}:l:key:k")
		amount := pipeline.Declare(batch, "test", pipeline.Raw, "HGET", "tg:{k:k}:b:key:k", "ulifetime.r")
		live, _ = slots.Get(r.Context())
		reserved, _ = amount.Get(r.Context())
		if live == int64(0) && (reserved == nil || reserved == "0") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.Errorf("%s: left behind: slots %v, reserved %v", what, live, reserved)
}

// messages, by the names of the table below.
func message(name string) *extprocv3.ProcessingRequest {
	half := len(body) / 2
	switch name {
	case "headers":
		return envoysim.RequestHeaders(call(body))
	case "body":
		return envoysim.RequestBody([]byte(body), true)
	case "half":
		return envoysim.RequestBody([]byte(body[:half]), false)
	case "rest":
		return envoysim.RequestBody([]byte(body[half:]), true)
	case "open body": // whole, but trailers are to follow
		return envoysim.RequestBody([]byte(body), false)
	case "empty end":
		return envoysim.RequestBody(nil, true)
	case "trailers":
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
	case "answer":
		return envoysim.ResponseHeaders(ok(nil))
	case "answer body":
		return envoysim.ResponseBody(ok(nil).Pieces[0], true)
	case "answer trailers":
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}}
	default:
		return &extprocv3.ProcessingRequest{} // of no known kind
	}
}

// play sends messages in order and returns how the stream ended, and how often the request was let go.
func (r *rig) play(names []string) (released int, end error) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	s, err := r.client.Process(ctx)
	if err != nil {
		r.Fatal(err)
	}
	for _, n := range names {
		if s.Send(message(n)) != nil {
			break // the server has ended the stream: Recv says why
		}
	}
	_ = s.CloseSend()
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return released, nil
		}
		if err != nil {
			return released, err
		}
		if m.GetRequestHeaders().GetResponse().GetHeaderMutation() != nil {
			released++
		}
	}
}

// Envoy never sends most of these; whoever does gets a clear status, one admission at most, and leaves nothing behind.
func TestE65MessagesInAnyOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, tt := range []struct {
		name     string
		messages string
		code     codes.Code
		released int
	}{
		{"a whole exchange", "headers|body|answer|answer body", codes.OK, 1},
		{"body in two pieces", "headers|half|rest|answer|answer body", codes.OK, 1},
		{"empty end after data", "headers|open body|empty end|answer|answer body", codes.OK, 1},
		{"trailers instead of an end", "headers|open body|trailers|answer|answer body", codes.OK, 1},
		{"answer ends with trailers", "headers|body|answer|answer trailers", codes.OK, 1},
		{"body twice", "headers|body|body|answer", codes.InvalidArgument, 1},
		{"empty end twice", "headers|body|empty end", codes.InvalidArgument, 1},
		{"headers twice", "headers|headers", codes.InvalidArgument, 0},
		{"body before headers", "body|headers", codes.InvalidArgument, 0},
		{"trailers before headers", "trailers", codes.InvalidArgument, 0},
		{"body after the answer's headers", "headers|body|answer|body", codes.InvalidArgument, 1},
		{"answer without a request body", "headers|answer|answer body", codes.OK, 0},
		{"answer without a request", "answer|answer body", codes.OK, 0},
		{"answer body without headers", "headers|body|answer body", codes.InvalidArgument, 1},
		{"answer trailers without headers", "headers|body|answer trailers", codes.InvalidArgument, 1},
		{"answer headers twice", "headers|body|answer|answer", codes.InvalidArgument, 1},
		{"unknown kind", "unknown", codes.InvalidArgument, 0},
		{"unknown kind after the request", "headers|body|unknown", codes.InvalidArgument, 1},
		{"closed at once", "", codes.OK, 0},
		{"closed after headers", "headers", codes.OK, 0},
		{"closed in the body", "headers|half", codes.OK, 0},
		{"closed after the body", "headers|body", codes.OK, 1},
		{"closed after the answer's headers", "headers|body|answer", codes.OK, 1},
	} {
		var names []string
		if tt.messages != "" {
			names = strings.Split(tt.messages, "|")
		}
		released, end := r.play(names)
		if status.Code(end) != tt.code || released != tt.released {
			t.Errorf("%s: ended with %v and let the request go %d times, want %s and %d", tt.name, end, released, tt.code, tt.released)
		}
		r.settled(tt.name)
		if a, err := envoysim.Exchange(t.Context(), r.client, call(body), ok); err != nil || a.Status != 200 {
			t.Errorf("%s: the next request got %+v, %v", tt.name, a, err)
		}
		r.settled(tt.name)
	}
}

// Envoy gives up on a request whose body does not come: its own answer passes, piece by piece, as it is.
func TestEnvoyGivesUpOnTheBody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := r.client.Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	timeout := &envoysim.Answer{Status: 408, Pieces: [][]byte{[]byte("stream timeout")}}
	for _, m := range []*extprocv3.ProcessingRequest{message("headers"), message("half"), envoysim.ResponseHeaders(timeout)} {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := s.Recv(); err != nil || m.GetResponseHeaders() == nil {
		t.Fatalf("to the headers: %v, %v", m, err)
	}
	if err := s.Send(envoysim.ResponseBody(timeout.Pieces[0], true)); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || m.GetResponseBody() == nil || m.GetResponseBody().GetResponse().GetBodyMutation() != nil {
		t.Fatalf("to the body: %v, %v", m, err)
	}
	_ = s.CloseSend()
	r.settled("given up")
}

// A mode in which nothing could be governed is refused, not passed through.
func TestModesThatCannotBeGoverned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, tt := range []struct {
		name string
		mode filterv3.ProcessingMode_BodySendMode
		want string
	}{
		{"none", filterv3.ProcessingMode_NONE, "request_body_mode NONE"},
		{"streamed, held back", filterv3.ProcessingMode_STREAMED, "send_body_without_waiting_for_header_response"},
	} {
		s, err := r.client.Process(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := envoysim.RequestHeaders(call(body))
		m.ProtocolConfig.RequestBodyMode = tt.mode
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
		got, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		reply := got.GetImmediateResponse()
		if reply.GetStatus().GetCode() != 500 || !strings.Contains(string(reply.GetBody()), tt.want) {
			t.Errorf("%s: %v", tt.name, got)
		}
		_ = s.CloseSend()
	}
}
