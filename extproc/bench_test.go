package extproc_test

import (
	"net"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tollgate-proxy/tollgate/extproc"
	"github.com/tollgate-proxy/tollgate/extproc/envoysim"
	"github.com/tollgate-proxy/tollgate/governance"
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// One governed chat through the filter on a real Redis, Envoy's part played by the benchmark: budgets and limits of a
// key, admission and settlement included. Beside it the same exchange refused from memory, which is what gRPC and the
// test's own part cost.
func BenchmarkExchange(b *testing.B) {
	server := redistest.Start(b)
	backend, err := pipeline.Open(pipeline.Options{URL: server.URL(), Deadline: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	cfg := configuration()
	cfg.Keys[0].Limits.Parallel = &config.Rate{Limit: 1 << 30}
	cfg.Keys[0].Limits.RPM = &config.Rate{Limit: 1 << 40}
	cfg.Keys[0].Limits.TPM = &config.Rate{Limit: 1 << 40}
	cfg.Keys[0].Limits.Budgets[0].Amount = 1 << 52
	gate, err := governance.New(governance.Options{Config: cfg, Counters: backend})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer()
	extproc.New(gate, nil).Register(s)
	go func() { _ = s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		_ = gate.Close(b.Context())
		_ = backend.Close()
	})
	client := extprocv3.NewExternalProcessorClient(conn)
	run := func(r envoysim.Request, status int) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if a, err := envoysim.Exchange(b.Context(), client, r, ok); err != nil || a.Status != status {
						b.Errorf("%+v, %v", a, err)
						return
					}
				}
			})
		}
	}
	unknown := call(body)
	unknown.Header = [][2]string{{"authorization", "Bearer sk-unknown"}}
	b.Run("governed", run(call(body), 200))
	b.Run("refused from memory", run(unknown, 401))
}
