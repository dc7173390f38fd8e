package envoy_test

import (
	"bytes"
	"cmp"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"

	"github.com/tollgate-proxy/tollgate/envoy"
)

// verdict is what a processor does with a request whose body it has read.
type verdict struct {
	cluster string            // ClusterHeader; "" sets none
	headers map[string]string // others to set
	body    []byte            // instead of the client's; nil leaves it
}

// processor is a small ext_proc server that serves whatever body modes Envoy is set to.
type processor struct {
	extprocv3.UnimplementedExternalProcessorServer

	decide  func(headers map[string]string, body []byte) verdict
	maxBody int // a larger body is refused with 413

	pieces       atomic.Int64 // of response bodies seen
	largestPiece atomic.Int64 // bytes of the largest request body message
	ends         atomic.Int64 // response ends seen
}

// serve starts the processor on a Unix socket and returns the address for Envoy.
func (p *processor) serve(t testing.TB) envoy.Upstream {
	t.Helper()
	address, _ := serveGRPC(t, func(g *grpc.Server) { extprocv3.RegisterExternalProcessorServer(g, p) })
	return address
}

// serveGRPC serves on a Unix socket until the test ends.
func serveGRPC(t testing.TB, register func(*grpc.Server)) (envoy.Upstream, *grpc.Server) {
	t.Helper()
	path := filepath.Join(socketDir(t), "s.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(envoy.ServerOptions(32 << 20)...)
	register(server)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return envoy.Upstream{Address: "unix:" + path}, server
}

// call is one request as the processor sees it.
type call struct {
	p       *processor
	stream  extprocv3.ExternalProcessor_ProcessServer
	config  *extprocv3.ProtocolConfiguration
	headers map[string]string
	source  string // the source.address attribute
	body    bytes.Buffer
	chunks  int
	verdict verdict
}

// errRefused ends a call after an immediate response.
var errRefused = errors.New("refused")

// Process serves one request.
func (p *processor) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	c := &call{p: p, stream: stream}
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		if attributes := request.GetAttributes()[envoy.FilterName]; attributes != nil {
			c.source = cmp.Or(c.source, attributes.GetFields()["source.address"].GetStringValue())
		}
		if request.GetProtocolConfig() != nil {
			c.config = request.GetProtocolConfig()
		}
		if err := c.serve(request); err != nil {
			return err
		}
	}
}

func (c *call) serve(request *extprocv3.ProcessingRequest) error {
	switch r := request.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return c.requestHeaders(r.RequestHeaders)
	case *extprocv3.ProcessingRequest_RequestBody:
		return c.requestBody(r.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		if err := c.release(false); err != nil {
			return err
		}
		return c.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
			RequestTrailers: &extprocv3.TrailersResponse{},
		}})
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return c.responseHeaders(r.ResponseHeaders)
	case *extprocv3.ProcessingRequest_ResponseBody:
		return c.responseBody(r.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		c.p.ends.Add(1)
		return c.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &extprocv3.TrailersResponse{},
		}})
	}
	return errors.New("unknown message")
}

func (c *call) requestHeaders(h *extprocv3.HttpHeaders) error {
	c.headers = make(map[string]string)
	for _, header := range h.GetHeaders().GetHeaders() {
		c.headers[header.Key] = string(header.RawValue)
	}
	if c.headers["upgrade"] != "" {
		return c.refuse(typev3.StatusCode_Forbidden, noUpgrade)
	}
	if h.EndOfStream {
		c.verdict = c.p.decide(c.headers, nil)
		return c.sendRequestHeaders(c.mutation(false))
	}
	switch c.config.GetRequestBodyMode() {
	case modev3.ProcessingMode_BUFFERED:
		return c.sendRequestHeaders(nil)
	case modev3.ProcessingMode_NONE:
		c.verdict = c.p.decide(c.headers, nil)
		return c.sendRequestHeaders(c.mutation(false))
	}
	return nil // held until the body is whole
}

func (c *call) requestBody(b *extprocv3.HttpBody) error {
	c.chunks++
	c.p.largestPiece.Store(max(c.p.largestPiece.Load(), int64(len(b.Body))))
	if c.body.Len()+len(b.Body) > c.p.maxBody {
		return c.refuse(typev3.StatusCode_PayloadTooLarge, tooLarge)
	}
	c.body.Write(b.Body)
	if !b.EndOfStream {
		return nil
	}
	return c.release(true)
}

// release lets the request go, with the last of its body or before its trailers.
func (c *call) release(end bool) error {
	c.verdict = c.p.decide(c.headers, c.body.Bytes())
	switch c.config.GetRequestBodyMode() {
	case modev3.ProcessingMode_BUFFERED:
		return c.sendRequestBody(&extprocv3.CommonResponse{
			HeaderMutation: c.mutation(true), BodyMutation: wholeBody(c.verdict.body), ClearRouteCache: true,
		})
	case modev3.ProcessingMode_STREAMED:
		return c.releaseStreamed()
	case modev3.ProcessingMode_FULL_DUPLEX_STREAMED:
		return c.releaseDuplex(end)
	}
	return nil
}

// releaseStreamed answers the pieces in order; the first carries a body that replaces them all.
func (c *call) releaseStreamed() error {
	if err := c.sendRequestHeaders(c.mutation(false)); err != nil {
		return err
	}
	for i := range c.chunks {
		response := new(extprocv3.CommonResponse)
		if c.verdict.body != nil {
			response.BodyMutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_ClearBody{ClearBody: true}}
			if i == 0 {
				response.BodyMutation = wholeBody(c.verdict.body)
			}
		}
		if err := c.sendRequestBody(response); err != nil {
			return err
		}
	}
	return nil
}

// pieceSize is of the pieces in which a body goes back to Envoy. Its documentation recommends less than 64 KiB; a body
// of 1 MiB took 1.3 times as long in such pieces as in these, and no less in larger ones.
const pieceSize = 256 << 10

// releaseDuplex sends the body back in pieces.
func (c *call) releaseDuplex(end bool) error {
	if err := c.sendRequestHeaders(c.mutation(false)); err != nil {
		return err
	}
	rest := c.body.Bytes()
	if c.verdict.body != nil {
		rest = c.verdict.body
	}
	for {
		piece := rest[:min(len(rest), pieceSize)]
		rest = rest[len(piece):]
		last := len(rest) == 0
		if err := c.sendRequestBody(streamedPiece(piece, last && end)); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}

func (c *call) responseHeaders(h *extprocv3.HttpHeaders) error {
	if h.EndOfStream {
		c.p.ends.Add(1)
	}
	return c.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{}},
	}})
}

func (c *call) responseBody(b *extprocv3.HttpBody) error {
	c.p.pieces.Add(1)
	if b.EndOfStream {
		c.p.ends.Add(1)
	}
	response := new(extprocv3.CommonResponse)
	if c.config.GetResponseBodyMode() == modev3.ProcessingMode_FULL_DUPLEX_STREAMED {
		response = streamedPiece(b.Body, b.EndOfStream)
	}
	return c.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
		ResponseBody: &extprocv3.BodyResponse{Response: response},
	}})
}

// mutation is the verdict's headers. A whole body that was edited needs its new length.
func (c *call) mutation(whole bool) *extprocv3.HeaderMutation {
	m := &extprocv3.HeaderMutation{RemoveHeaders: []string{"authorization"}}
	set := func(name, value string) {
		m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	if c.verdict.cluster != "" {
		set(envoy.ClusterHeader, c.verdict.cluster)
	}
	set(sourceHeader, c.source)
	for name, value := range c.verdict.headers {
		set(name, value)
	}
	if whole && c.verdict.body != nil {
		set("content-length", strconv.Itoa(len(c.verdict.body)))
	}
	return m
}

func (c *call) refuse(status typev3.StatusCode, body string) error {
	err := c.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: status},
			Body:   []byte(body),
			Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{
				Header: &corev3.HeaderValue{Key: "content-type", RawValue: []byte("application/json")},
			}}},
		},
	}})
	if err != nil {
		return err
	}
	for err == nil { // Envoy ends the stream; until then it may still send what is on its way
		_, err = c.stream.Recv()
	}
	return errRefused
}

// sourceHeader tells the upstream what the processor was told of the client's address.
const sourceHeader = "x-source"

// The bodies of the processor's refusals.
const (
	tooLarge  = `{"error":{"type":"invalid_request_error","code":"request_too_large"}}`
	noUpgrade = `{"error":{"type":"invalid_request_error","code":"unknown_endpoint"}}`
)

func (c *call) sendRequestHeaders(m *extprocv3.HeaderMutation) error {
	return c.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{
			HeaderMutation: m, ClearRouteCache: m != nil,
		}},
	}})
}

func (c *call) sendRequestBody(r *extprocv3.CommonResponse) error {
	return c.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: r},
	}})
}

func (c *call) send(r *extprocv3.ProcessingResponse) error {
	return c.stream.Send(r)
}

func wholeBody(body []byte) *extprocv3.BodyMutation {
	if body == nil {
		return nil
	}
	return &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: body}}
}

func streamedPiece(piece []byte, end bool) *extprocv3.CommonResponse {
	return &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: piece, EndOfStream: end},
		},
	}}
}
