package envoysim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Request is an HTTP request as a client sends it.
type Request struct {
	Method, Path string
	Header       [][2]string
	Body         []byte
}

// Answer is an HTTP answer: the upstream's, as a script, or what the client gets.
type Answer struct {
	Status int
	Header [][2]string
	Pieces [][]byte
}

// Body is the whole body.
func (a *Answer) Body() []byte { return bytes.Join(a.Pieces, nil) }

// Get is a header's value, "" when it is absent.
func (a *Answer) Get(name string) string { return get(a.Header, name) }

// Get is a header's value, "" when it is absent.
func (r *Request) Get(name string) string { return get(r.Header, name) }

func get(h [][2]string, name string) string {
	for _, kv := range h {
		if kv[0] == name {
			return kv[1]
		}
	}
	return ""
}

// Upstream answers a request as tollgate let it go.
type Upstream func(*Request) *Answer

// Exchange sends one request through an ext_proc server and, unless the server answers itself, through the upstream. It
// returns what the client gets, and closes the stream as Envoy does. answered, when given, is called when the client has
// the last byte and the stream is still open.
func Exchange(ctx context.Context, c extprocv3.ExternalProcessorClient, r Request, up Upstream, answered ...func()) (*Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.Process(ctx)
	if err != nil {
		return nil, err
	}
	x := &exchange{stream: s}
	sent, answer, err := x.request(r)
	if err == nil && answer == nil {
		answer, err = x.response(up(sent))
	}
	if err != nil {
		return nil, err
	}
	for _, f := range answered {
		f()
	}
	return answer, x.end()
}

type exchange struct {
	stream extprocv3.ExternalProcessor_ProcessClient
}

// request sends the request and returns it as it goes upstream, or the server's own answer.
func (x *exchange) request(r Request) (*Request, *Answer, error) {
	if err := x.stream.Send(RequestHeaders(r)); err != nil {
		return nil, nil, err
	}
	for len(r.Body) > 0 {
		n := min(len(r.Body), 64<<10)
		if err := x.stream.Send(RequestBody(r.Body[:n], n == len(r.Body))); err != nil {
			break // the server may have answered already
		}
		r.Body = r.Body[n:]
	}
	out := &Request{Method: r.Method, Path: r.Path, Header: slices.Clone(r.Header)}
	for {
		m, err := x.stream.Recv()
		if err != nil {
			return nil, nil, fmt.Errorf("no verdict: %w", err)
		}
		switch v := m.Response.(type) {
		case *extprocv3.ProcessingResponse_ImmediateResponse:
			return nil, immediate(v.ImmediateResponse), nil
		case *extprocv3.ProcessingResponse_RequestHeaders:
			out.Header = mutate(out.Header, v.RequestHeaders.GetResponse().GetHeaderMutation())
		case *extprocv3.ProcessingResponse_RequestBody:
			piece := v.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse()
			out.Body = append(out.Body, piece.GetBody()...)
			if piece.GetEndOfStream() {
				if p := out.Get(":path"); p != "" {
					out.Path = p
				}
				return out, nil, nil
			}
		default:
			return nil, nil, fmt.Errorf("unexpected answer %T", v)
		}
	}
}

// response sends the upstream's answer and returns it as it goes to the client.
func (x *exchange) response(a *Answer) (*Answer, error) {
	if err := x.stream.Send(ResponseHeaders(a)); err != nil {
		return nil, err
	}
	m, err := x.stream.Recv()
	if err != nil {
		return nil, err
	}
	out := &Answer{Status: a.Status, Header: slices.Clone(a.Header)}
	out.Header = mutate(out.Header, m.GetResponseHeaders().GetResponse().GetHeaderMutation())
	for i, p := range a.Pieces {
		if err := x.stream.Send(ResponseBody(p, i == len(a.Pieces)-1)); err != nil {
			return nil, err
		}
		m, err := x.stream.Recv()
		if err != nil {
			return nil, err
		}
		switch b := m.GetResponseBody().GetResponse().GetBodyMutation().GetMutation().(type) {
		case nil:
			out.Pieces = append(out.Pieces, p)
		case *extprocv3.BodyMutation_Body:
			out.Pieces = append(out.Pieces, b.Body)
		case *extprocv3.BodyMutation_ClearBody:
		default:
			return nil, fmt.Errorf("unexpected mutation %T", b)
		}
	}
	return out, nil
}

// end closes the stream and waits until the server has done so too.
func (x *exchange) end() error {
	if err := x.stream.CloseSend(); err != nil {
		return err
	}
	if _, err := x.stream.Recv(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("end of stream: %w", err)
	}
	return nil
}

func immediate(r *extprocv3.ImmediateResponse) *Answer {
	return &Answer{
		Status: int(r.GetStatus().GetCode()), Header: mutate(nil, r.GetHeaders()), Pieces: [][]byte{r.GetBody()},
	}
}

// mutate applies a header mutation.
func mutate(h [][2]string, m *extprocv3.HeaderMutation) [][2]string {
	h = slices.DeleteFunc(h, func(kv [2]string) bool { return slices.Contains(m.GetRemoveHeaders(), kv[0]) })
	for _, o := range m.GetSetHeaders() {
		name := o.GetHeader().GetKey()
		h = slices.DeleteFunc(h, func(kv [2]string) bool { return kv[0] == name })
		h = append(h, [2]string{name, string(o.GetHeader().GetRawValue())})
	}
	return h
}

// RequestHeaders is the first message of a stream, which names the body modes.
func RequestHeaders(r Request) *extprocv3.ProcessingRequest {
	h := append([][2]string{{":method", r.Method}, {":path", r.Path}, {":authority", "gateway"}}, r.Header...)
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
			Headers: headerMap(h), EndOfStream: len(r.Body) == 0,
		}},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{
			RequestBodyMode:  filterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
			ResponseBodyMode: filterv3.ProcessingMode_STREAMED,
		},
	}
}

// RequestBody is a piece of the request's body.
func RequestBody(b []byte, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: b, EndOfStream: end},
	}}
}

// ResponseHeaders is the head of the upstream's answer, with the attributes that tell it from Envoy's own.
func ResponseHeaders(a *Answer) *extprocv3.ProcessingRequest {
	h := append([][2]string{{":status", strconv.Itoa(a.Status)}}, a.Header...)
	address := structpb.NewStringValue("127.0.0.1:1")
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{
			Headers: headerMap(h), EndOfStream: len(a.Pieces) == 0,
		}},
		Attributes: map[string]*structpb.Struct{
			"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{"upstream.address": address}},
		},
	}
}

// ResponseBody is a piece of the upstream's answer.
func ResponseBody(b []byte, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: b, EndOfStream: end},
	}}
}

func headerMap(h [][2]string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{Headers: make([]*corev3.HeaderValue, len(h))}
	for i, kv := range h {
		m.Headers[i] = &corev3.HeaderValue{Key: kv[0], RawValue: []byte(kv[1])}
	}
	return m
}
