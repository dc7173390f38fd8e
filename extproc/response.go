package extproc

import (
	"strconv"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// responseHeaders takes the head of the answer, the upstream's or one of Envoy's own.
func (x *session) responseHeaders(req *extprocv3.ProcessingRequest, m *extprocv3.HttpHeaders) error {
	switch x.phase {
	case awaitHeaders:
		// Envoy answered before it showed the request: there is nothing to govern.
		x.phase = inResponse
		return x.send(responseHeadersResponse(&extprocv3.CommonResponse{}))
	case awaitBody:
		return x.unread(m)
	case inResponse:
		return outOfOrder("second response headers")
	}
	x.phase = inResponse
	h := headers(m.GetHeaders().GetHeaders())
	code, _ := strconv.Atoi(h.first(":status"))
	a := x.call.Answered(code, h, isLocal(req))
	if m.GetEndOfStream() {
		x.call.Ended()
	}
	return x.send(responseHeadersResponse(responseCommon(a)))
}

// unread answers for Envoy when it gave up on the request's body: too large for its buffer, or too slow.
func (x *session) unread(m *extprocv3.HttpHeaders) error {
	if headers(m.GetHeaders().GetHeaders()).first(":status") == "413" {
		return x.immediate(x.call.TooLarge())
	}
	x.phase = inResponse
	return x.send(responseHeadersResponse(&extprocv3.CommonResponse{}))
}

// responseBody shows the call a piece of the answer and passes it on.
func (x *session) responseBody(m *extprocv3.HttpBody) error {
	if x.phase != inResponse {
		return outOfOrder("response body before its headers")
	}
	piece, last := m.GetBody(), m.GetEndOfStream()
	out := piece
	if x.call != nil {
		out = x.call.Piece(piece, last)
	}
	if x.responseMode == modeFullDuplex {
		return x.send(responseBodyResponse(streamedBody(out, last)))
	}
	c := &extprocv3.CommonResponse{}
	if !same(out, piece) {
		c.BodyMutation = wholeBody(out)
		if x.responseMode == modeBuffered || x.responseMode == modeBufferedPartial {
			c.HeaderMutation = setHeaders([][2]string{{"content-length", strconv.Itoa(len(out))}}, nil)
		}
	}
	return x.send(responseBodyResponse(c))
}

// responseTrailers end an answer whose last piece did not say that it was the last.
func (x *session) responseTrailers() error {
	if x.phase != inResponse {
		return outOfOrder("response trailers before headers")
	}
	if x.call != nil {
		tail := x.call.Ended()
		if len(tail) > 0 && x.responseMode == modeFullDuplex {
			if err := x.send(responseBodyResponse(streamedBody(tail, false))); err != nil {
				return err
			}
		}
	}
	return x.send(responseTrailersResponse())
}

// same says whether two slices are the same bytes in memory.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// filterName is the key under which Envoy sends the attributes that the filter asks for.
const filterName = "envoy.filters.http.ext_proc"

// isLocal says whether Envoy gave the answer itself. It needs response_attributes: [upstream.address]; without them
// every answer counts as an upstream's.
func isLocal(req *extprocv3.ProcessingRequest) bool {
	attrs, asked := req.GetAttributes()[filterName]
	if !asked {
		return false
	}
	addr := attrs.GetFields()["upstream.address"].GetStringValue()
	return addr == ""
}
