package extproc_test

import (
	"context"
	"io"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollgate-proxy/tollgate/extproc"
	"github.com/tollgate-proxy/tollgate/extproc/envoysim"
)

// faulty is a stream that panics once: at one of its receives or sends, counted from 1.
type faulty struct {
	grpc.ServerStream
	ctx        context.Context
	in         []*extprocv3.ProcessingRequest
	atRecv     int
	atSend     int
	recv, send int
	out        []*extprocv3.ProcessingResponse
}

func (f *faulty) Context() context.Context { return f.ctx }

func (f *faulty) Recv() (*extprocv3.ProcessingRequest, error) {
	if f.recv++; f.recv == f.atRecv {
		panic("in receive") //nolint:forbidigo // what is tested
	}
	if len(f.in) == 0 {
		return nil, io.EOF
	}
	m := f.in[0]
	f.in = f.in[1:]
	return m, nil
}

func (f *faulty) Send(m *extprocv3.ProcessingResponse) error {
	if f.send++; f.send == f.atSend {
		panic("in send") //nolint:forbidigo // what is tested
	}
	f.out = append(f.out, m)
	return nil
}

// TestPanicRefuses wants a panic to refuse what has not gone on yet, to break off what has, and to leave nothing held.
func TestPanicRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	server := extproc.New(r.gate, nil)
	for _, tt := range []struct {
		name           string
		atRecv, atSend int
		refused        bool
	}{
		{"before the headers", 1, 0, true},
		{"before the body", 2, 0, true},
		{"while the request is let go", 0, 1, true},
		{"before the answer", 3, 0, false},
		{"while the answer passes", 0, 4, false},
	} {
		f := &faulty{ctx: t.Context(), atRecv: tt.atRecv, atSend: tt.atSend, in: []*extprocv3.ProcessingRequest{
			envoysim.RequestHeaders(call(body)), envoysim.RequestBody([]byte(body), true),
			envoysim.ResponseHeaders(ok(nil)), envoysim.ResponseBody(ok(nil).Pieces[0], true),
		}}
		err := server.Process(f)
		if !tt.refused {
			if status.Code(err) != codes.Internal {
				t.Errorf("%s: the stream ended with %v, want an error", tt.name, err)
			}
		} else if last := f.out[len(f.out)-1].GetImmediateResponse(); err != nil || last == nil || last.GetStatus().GetCode() != 500 {
			t.Errorf("%s: %v, the last message was %v, want a refusal", tt.name, err, f.out[len(f.out)-1])
		}
		r.settled(tt.name)
	}
}
