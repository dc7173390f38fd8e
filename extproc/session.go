package extproc

import (
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollgate-proxy/tollgate/governance"
)

// The body modes of Envoy, by shorter names.
const (
	modeNone            = filterv3.ProcessingMode_NONE
	modeStreamed        = filterv3.ProcessingMode_STREAMED
	modeBuffered        = filterv3.ProcessingMode_BUFFERED
	modeBufferedPartial = filterv3.ProcessingMode_BUFFERED_PARTIAL
	modeFullDuplex      = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
)

// phase is what a session waits for.
type phase int

const (
	awaitHeaders  phase = iota
	awaitBody           // the request's body is arriving
	awaitResponse       // the request went on
	inResponse          // the answer's headers were seen
	answered            // we answered ourselves: nothing more is expected
)

// session is one stream: one HTTP request.
type session struct {
	server *Server
	stream extprocv3.ExternalProcessor_ProcessServer
	phase  phase

	requestMode, responseMode filterv3.ProcessingMode_BodySendMode
	early                     bool // Envoy sends the body without waiting for our answer to the headers

	head     governance.Head
	call     *governance.Call
	pieces   int    // body messages that wait for an answer
	body     []byte // of the request, as far as it has come
	released bool   // the request went on
}

// run serves messages until Envoy is done with the stream.
func (x *session) run() error {
	for {
		req, err := x.stream.Recv()
		if err != nil {
			return nil // however it ended: what happened to the request is told by what was seen of it
		}
		if x.phase == answered {
			continue
		}
		if err := x.handle(req); err != nil {
			return err
		}
	}
}

// close settles the request. It runs on every exit.
func (x *session) close() {
	if x.call != nil {
		x.call.End()
	}
}

func (x *session) handle(req *extprocv3.ProcessingRequest) error {
	switch m := req.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return x.requestHeaders(req, m.RequestHeaders)
	case *extprocv3.ProcessingRequest_RequestBody:
		return x.requestBody(m.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return x.requestTrailers()
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return x.responseHeaders(req, m.ResponseHeaders)
	case *extprocv3.ProcessingRequest_ResponseBody:
		return x.responseBody(m.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return x.responseTrailers()
	default:
		return outOfOrder("a message of unknown kind")
	}
}

// outOfOrder ends a stream whose messages make no sense. Envoy answers 500: nothing passes.
func outOfOrder(what string) error {
	return status.Errorf(codes.InvalidArgument, "unexpected %s", what)
}

// metadataOf is the gRPC metadata of a session's stream. A pointer to the session, it costs nothing until it is read.
type metadataOf session

// Values implements identity.Headers.
func (m *metadataOf) Values(name string) []string {
	return metadata.ValueFromIncomingContext(m.stream.Context(), name)
}

// send sends one answer; a failure means that the stream is over, which the next Recv tells.
func (x *session) send(r *extprocv3.ProcessingResponse) error { return x.stream.Send(r) }

// immediate answers the request ourselves.
func (x *session) immediate(r *governance.Reply) error {
	x.phase = answered
	x.body = nil
	return x.send(immediateResponse(r))
}

// setModes takes the modes that Envoy names with the first message. A client of the service that names none is taken
// to buffer requests and to stream answers.
func (x *session) setModes(cfg *extprocv3.ProtocolConfiguration) {
	x.requestMode, x.responseMode = modeBuffered, modeStreamed
	if cfg != nil {
		x.requestMode, x.responseMode = cfg.GetRequestBodyMode(), cfg.GetResponseBodyMode()
		x.early = cfg.GetSendBodyWithoutWaitingForHeaderResponse()
	}
}
