package extproc

import (
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/tollgate-proxy/tollgate/governance"
)

// headers are the headers of a message. Envoy sends values as bytes, in raw_value.
type headers []*corev3.HeaderValue

// Values implements identity.Headers.
func (h headers) Values(name string) []string {
	var list []string
	for _, v := range h {
		if v.Key == name {
			list = append(list, value(v))
		}
	}
	return list
}

// Names lists the names of all headers.
func (h headers) Names() []string {
	list := make([]string, len(h))
	for i, v := range h {
		list[i] = v.Key
	}
	return list
}

func (h headers) first(name string) string {
	for _, v := range h {
		if v.Key == name {
			return value(v)
		}
	}
	return ""
}

func value(v *corev3.HeaderValue) string {
	if len(v.RawValue) > 0 {
		return string(v.RawValue)
	}
	return v.Value
}

// setHeaders sets headers in place of whatever a client sent under these names, and removes others.
func setHeaders(set [][2]string, remove []string) *extprocv3.HeaderMutation {
	m := &extprocv3.HeaderMutation{
		SetHeaders: make([]*corev3.HeaderValueOption, len(set)), RemoveHeaders: remove,
	}
	for i, h := range set {
		m.SetHeaders[i] = &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: h[0], RawValue: []byte(h[1])},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}
	}
	return m
}

// requestCommon is the change to the request's head. The route is chosen again with it: clear_route_cache counts only
// together with a header mutation. A length of -1 leaves content-length to Envoy.
func requestCommon(f *governance.Forward, length int) *extprocv3.CommonResponse {
	set := f.Set
	if length >= 0 {
		set = append(set, [2]string{"content-length", strconv.Itoa(length)})
	}
	return &extprocv3.CommonResponse{HeaderMutation: setHeaders(set, f.Remove), ClearRouteCache: true}
}

func responseCommon(a governance.Answer) *extprocv3.CommonResponse {
	return &extprocv3.CommonResponse{HeaderMutation: setHeaders(a.Set, a.Remove)}
}

func wholeBody(b []byte) *extprocv3.BodyMutation {
	if len(b) == 0 {
		return noBody()
	}
	return &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: b}}
}

func noBody() *extprocv3.BodyMutation {
	return &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_ClearBody{ClearBody: true}}
}

func streamedBody(b []byte, end bool) *extprocv3.CommonResponse {
	return &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: b, EndOfStream: end},
		},
	}}
}

func continueHeaders() *extprocv3.ProcessingResponse {
	return headersResponse(&extprocv3.CommonResponse{})
}

func headersResponse(c *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: c},
	}}
}

func bodyResponse(c *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: c},
	}}
}

func requestTrailersResponse() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
		RequestTrailers: &extprocv3.TrailersResponse{},
	}}
}

func responseHeadersResponse(c *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{Response: c},
	}}
}

func responseBodyResponse(c *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
		ResponseBody: &extprocv3.BodyResponse{Response: c},
	}}
}

func responseTrailersResponse() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
		ResponseTrailers: &extprocv3.TrailersResponse{},
	}}
}

// immediateResponse is an answer of our own.
func immediateResponse(r *governance.Reply) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(r.Status)},
			Headers: setHeaders(r.Header, nil),
			Body:    r.Body,
			Details: r.Details,
		},
	}}
}
