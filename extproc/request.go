package extproc

import (
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/tollgate-proxy/tollgate/governance"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// requestHeaders decides by the headers, or waits for the body.
func (x *session) requestHeaders(req *extprocv3.ProcessingRequest, m *extprocv3.HttpHeaders) error {
	if x.phase != awaitHeaders {
		return outOfOrder("second request headers")
	}
	x.setModes(req.GetProtocolConfig())
	h := headers(m.GetHeaders().GetHeaders())
	x.head = governance.Head{Method: h.first(":method"), Path: h.first(":path"), Headers: h, Metadata: (*metadataOf)(x)}
	call, reply := x.server.gate.Begin(x.head)
	if reply != nil {
		return x.immediate(reply)
	}
	x.call = call
	if x.responseMode == modeNone {
		call.Blind()
	}
	x.phase = awaitBody
	if m.GetEndOfStream() { // no body message will come
		return x.admit(false)
	}
	switch x.requestMode {
	case modeBuffered, modeBufferedPartial:
		return x.send(continueHeaders())
	case modeFullDuplex:
		return nil // answered together with the body
	case modeStreamed:
		if x.early {
			return nil
		}
		return x.misconfigured("request_body_mode STREAMED needs send_body_without_waiting_for_header_response")
	default:
		return x.misconfigured("request_body_mode NONE shows tollgate no request: set FULL_DUPLEX_STREAMED, BUFFERED or STREAMED")
	}
}

// misconfigured refuses a request that Envoy's settings do not let us govern.
func (x *session) misconfigured(why string) error {
	x.server.log.Error("request refused: envoy's ext_proc filter is not set up for tollgate", "error", why)
	return x.immediate(x.server.gate.Refuse(x.head, &refusal.Refusal{Reason: refusal.Internal, Message: "the gateway is misconfigured: " + why}))
}

// requestBody collects the body; with its last byte the call is decided.
func (x *session) requestBody(m *extprocv3.HttpBody) error {
	if x.phase != awaitBody {
		if x.phase == awaitHeaders {
			return outOfOrder("request body before its headers")
		}
		return outOfOrder("request body after its end")
	}
	x.pieces++
	piece, last := m.GetBody(), m.GetEndOfStream()
	if int64(len(x.body))+int64(len(piece)) > x.server.gate.MaxBody() {
		return x.immediate(x.call.TooLarge())
	}
	if reply := x.call.Denied(); reply != nil {
		return x.immediate(reply)
	}
	if x.body == nil {
		x.body = piece[:len(piece):len(piece)] // a body that comes whole is not copied
	} else {
		x.body = append(x.body, piece...)
	}
	switch {
	case x.requestMode == modeBufferedPartial && !last:
		return x.immediate(x.call.TooLarge()) // Envoy's buffer was full: the rest was not shown
	case last || x.requestMode == modeBuffered: // trailers may follow a buffered body
		return x.admit(false)
	}
	return nil
}

// requestTrailers end a body whose last piece did not say that it was the last.
func (x *session) requestTrailers() error {
	switch x.phase {
	case awaitHeaders:
		return outOfOrder("request trailers before headers")
	case awaitBody:
		if err := x.admit(true); err != nil || x.phase == answered {
			return err
		}
	}
	return x.send(requestTrailersResponse())
}

// admit asks for the verdict and carries it out.
func (x *session) admit(trailers bool) error {
	f, reply := x.call.Admit(x.stream.Context(), x.body)
	if reply != nil {
		return x.immediate(reply)
	}
	x.phase = awaitResponse
	x.body = nil
	if err := x.forward(f, trailers); err != nil {
		return err
	}
	x.released = true
	x.call.Released()
	return nil
}

// forward lets the request go, in the way of the body mode.
func (x *session) forward(f *governance.Forward, trailers bool) error {
	switch x.requestMode {
	case modeFullDuplex:
		if err := x.send(headersResponse(requestCommon(f, -1))); err != nil {
			return err
		}
		return x.streamBody(f.Body, !trailers)
	case modeStreamed:
		if err := x.send(headersResponse(requestCommon(f, -1))); err != nil {
			return err
		}
		return x.answerPieces(f)
	default:
		length := -1
		if f.Edited {
			length = len(f.Body) // Envoy answers 500 when an edited body has another length than its header
		}
		c := requestCommon(f, length)
		if f.Edited {
			c.BodyMutation = wholeBody(f.Body)
		}
		return x.send(bodyResponse(c))
	}
}

// pieceSize is the longest piece of a body that is sent in one message. Pieces below 64 KiB, as Envoy's documentation
// recommends, took a 1 MiB body about 1.3 times as long (envoy.BenchmarkBodyModes).
const pieceSize = 256 << 10

// streamBody sends a body in full-duplex mode.
func (x *session) streamBody(body []byte, last bool) error {
	for {
		n := min(len(body), pieceSize)
		end := n == len(body)
		if err := x.send(bodyResponse(streamedBody(body[:n], end && last))); err != nil {
			return err
		}
		if body = body[n:]; end {
			return nil
		}
	}
}

// answerPieces answers each piece that Envoy streamed and still holds: the first one becomes the whole body when it was
// edited, the others nothing.
func (x *session) answerPieces(f *governance.Forward) error {
	for i := range x.pieces {
		c := &extprocv3.CommonResponse{}
		switch {
		case f.Edited && i == 0:
			c.BodyMutation = wholeBody(f.Body)
		case f.Edited:
			c.BodyMutation = noBody()
		}
		if err := x.send(bodyResponse(c)); err != nil {
			return err
		}
	}
	return nil
}
