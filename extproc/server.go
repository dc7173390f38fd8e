package extproc

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollgate-proxy/tollgate/governance"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// Server is the ext_proc service. It is safe for concurrent use.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	gate *governance.Gate
	log  *slog.Logger
}

// New makes the service.
func New(gate *governance.Gate, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Server{gate: gate, log: log}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { extprocv3.RegisterExternalProcessorServer(r, s) }

// Process serves one HTTP request.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) (err error) {
	x := &session{server: s, stream: stream}
	defer x.close()
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("panic while a request was handled", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = x.panicked()
		}
	}()
	return x.run()
}

// panicked refuses the request, if it still can be refused, and else breaks it off.
func (x *session) panicked() error {
	failed := status.Error(codes.Internal, "tollgate failed")
	if x.released {
		return failed
	}
	if err := x.immediate(x.server.gate.Refuse(x.head, &refusal.Refusal{Reason: refusal.Internal})); err != nil {
		return failed
	}
	return x.wait()
}

// wait reads until Envoy is done with the stream.
func (x *session) wait() error {
	for {
		if _, err := x.stream.Recv(); err != nil {
			return nil
		}
	}
}
