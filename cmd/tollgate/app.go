package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"

	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/extproc"
	"github.com/tollgate-proxy/tollgate/governance"
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/journal"
)

// tripsKept is how many of the newest trips to Redis /debug/trips shows.
const tripsKept = 256

// app is one tollgate process: the filter with all that it serves.
type app struct {
	cfg      *config.Config
	log      *slog.Logger
	backend  *pipeline.Backend // counters
	cache    *pipeline.Backend // cached answers; may be the same
	tracer   *pipeline.Tracer
	spans    *spans // nil: none are sent
	gate     *governance.Gate
	xds      *envoy.Server // nil: not served
	registry *prometheus.Registry
	grpc     []*grpc.Server
	http     []*http.Server
	bound    map[string]string // where each server really listens, by name: a port may be left to the kernel
	failed   chan error        // the first server that ended by itself
	draining atomic.Bool
}

// addresses are where an app listens; "" leaves a server out.
type addresses struct {
	extproc, xds, health, admin string
}

// newApp makes the store, the gate and the servers, and starts to listen. On an error nothing is left running.
func newApp(cfg *config.Config, at addresses, log *slog.Logger) (*app, error) {
	a := &app{
		cfg: cfg, log: log, tracer: pipeline.NewTracer(tripsKept), registry: prometheus.NewRegistry(),
		failed: make(chan error, 4), bound: map[string]string{},
	}
	if err := a.start(at); err != nil {
		a.abort()
		return nil, err
	}
	return a, nil
}

// start brings up the parts in order.
func (a *app) start(at addresses) (err error) {
	cfg, log := a.cfg, a.log
	if a.spans, err = newSpans(cfg.Tracing, log); err != nil {
		return err
	}
	if a.spans != nil {
		a.tracer.Export(a.spans.tracer("pipeline"))
	}
	if err := a.openStores(); err != nil {
		return err
	}
	switch err := a.backend.CheckMemoryPolicy(context.Background()); {
	case errors.Is(err, pipeline.ErrEvicts):
		return err
	case err != nil: // it may come yet: the readiness probe says so until then
		log.Warn("redis does not answer; until it does, redis.on_failure decides on requests", "error", err)
	}
	if a.backend.Embedded() {
		log.Info("using the in-process store: nothing is kept across restarts, and nothing is shared with other processes")
	}
	options := governance.Options{Config: cfg, Counters: a.backend, Cache: a.cache, Metrics: governance.NewMetrics(), Log: log}
	if a.spans != nil {
		options.Spans = a.spans.tracer("governance")
	}
	if err := a.openJournal(&options); err != nil {
		return err
	}
	if a.gate, err = governance.New(options); err != nil {
		return err
	}
	a.registry.MustRegister(a.tracer, options.Metrics, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := a.serveGRPC(at); err != nil {
		return err
	}
	if err := a.serveHTTP("health", at.health, a.healthHandler()); err != nil {
		return err
	}
	return a.serveHTTP("admin", at.admin, a.debugHandler())
}

// openStores opens the counters' store and the cache's, which is the same one unless another is named.
func (a *app) openStores() (err error) {
	redis := a.cfg.Redis
	if redis.URL == "" {
		a.backend, err = pipeline.OpenEmbedded(pipeline.EmbeddedOptions{Evictable: redis.Prefix + ":c:", Tracer: a.tracer})
		a.cache = a.backend
		return err
	}
	options := pipeline.Options{
		URL: redis.URL, Username: redis.Username, Password: redis.Password, Deadline: redis.Deadline,
		Eval: redis.Scripts == "eval", Tracer: a.tracer,
	}
	if a.backend, err = pipeline.Open(options); err != nil {
		return err
	}
	a.cache = a.backend
	if redis.CacheURL == "" || pipeline.SameStore(redis.URL, redis.CacheURL) {
		return nil
	}
	options.URL = redis.CacheURL
	a.cache, err = pipeline.Open(options)
	return err
}

// openJournal opens the journal that the configuration names. With the in-process store there is nothing to keep: it is
// never away, and what it held is gone with the process.
func (a *app) openJournal(o *governance.Options) (err error) {
	j := a.cfg.Journal
	switch {
	case a.backend.Embedded():
		return nil
	case j == nil:
		a.log.Info("no journal is set: what Redis does not take before this process ends is lost")
		return nil
	}
	o.JournalAfter = j.Fsync
	o.Journal, err = journal.Open(journal.Options{Dir: j.Dir, Max: j.Max, Log: a.log})
	return err
}

// serveGRPC starts the filter, and the xDS server where it is wanted.
func (a *app) serveGRPC(at addresses) error {
	options := append(envoy.ServerOptions(a.cfg.Defaults.MaxBody),
		// A window of a piece of body, so that the next one is on its way while this one is read.
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(16<<20))
	filter := grpc.NewServer(options...)
	extproc.New(a.gate, a.log).Register(filter)
	if err := a.serve("extproc", at.extproc, filter); err != nil {
		return err
	}
	if at.xds == "" {
		return nil
	}
	a.xds = envoy.NewServer(a.log, envoy.Options{})
	if err := a.xds.Update(a.cfg); err != nil {
		return err
	}
	server := grpc.NewServer(options...)
	a.xds.Register(server)
	return a.serve("xds", at.xds, server)
}

func (a *app) serve(name, address string, s *grpc.Server) error {
	l, err := listen(name, address)
	if err != nil {
		return err
	}
	a.grpc = append(a.grpc, s)
	a.bound[name] = l.Addr().String()
	go func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			a.failed <- fmt.Errorf("%s server: %w", name, err)
		}
	}()
	return nil
}

func (a *app) serveHTTP(name, address string, h http.Handler) error {
	if address == "" {
		return nil
	}
	l, err := listen(name, address)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelWarn)}
	a.http = append(a.http, s)
	a.bound[name] = l.Addr().String()
	go func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("%s server: %w", name, err)
		}
	}()
	return nil
}

// apply puts a changed configuration in force.
func (a *app) apply(cfg *config.Config) {
	if len(cfg.NotYet) > 0 {
		a.log.Error("new configuration refused, the old one stays: it sets what is not built yet", "key", cfg.NotYet[0].Key, "line", cfg.NotYet[0].Line)
		return
	}
	// Envoy first: the filter must not choose a deployment that Envoy does not know yet.
	if a.xds != nil {
		if err := a.xds.Update(cfg); err != nil {
			a.log.Error("new configuration refused, the old one stays", "error", err)
			return
		}
	}
	if err := a.gate.Apply(cfg); err != nil {
		a.log.Error("new configuration refused, the old one stays", "error", err)
		return
	}
	if key := fixed(a.cfg, cfg); key != "" {
		a.log.Warn("this setting takes a restart to change", "key", key)
	}
}

// fixed names a setting that differs and belongs to the process: listeners and the store stay as they were at the start.
func fixed(was, is *config.Config) string {
	before, after := was.Redis, is.Redis
	before.OnFailure, after.OnFailure = config.OnFailure{}, config.OnFailure{}
	switch {
	case was.Listen != is.Listen:
		return "listen"
	case before != after:
		return "redis"
	case was.Drain != is.Drain:
		return "drain"
	case was.Log != is.Log:
		return "log"
	case (was.Journal == nil) != (is.Journal == nil) || was.Journal != nil && *was.Journal != *is.Journal:
		return "journal"
	case (was.Tracing == nil) != (is.Tracing == nil) || was.Tracing != nil && *was.Tracing != *is.Tracing:
		return "tracing"
	case was.Ledger.StreamMax != is.Ledger.StreamMax:
		return "ledger.stream_max"
	}
	return ""
}

// shutdown ends the app: not ready, no new streams, those under way finish within the grace period, then everything
// that is still to be written is.
func (a *app) shutdown(grace time.Duration) error {
	a.draining.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if a.xds != nil {
		a.xds.Close()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range a.grpc {
			s.GracefulStop()
		}
	}()
	var errs []error
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("requests were still running after %s and were cut", grace))
		for _, s := range a.grpc {
			s.Stop()
		}
		<-done
	}
	// Streams that were cut end at once; their settlements are still to leave.
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	errs = append(errs, a.gate.Drain(ctx), a.gate.Close(ctx))
	a.spans.close()
	for _, s := range a.http {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, a.closeStores())...)
}

func (a *app) closeStores() error {
	var errs []error
	if a.cache != nil && a.cache != a.backend {
		errs = append(errs, a.cache.Close())
	}
	if a.backend != nil {
		errs = append(errs, a.backend.Close())
	}
	return errors.Join(errs...)
}

// abort ends an app that did not come up.
func (a *app) abort() {
	for _, s := range a.grpc {
		s.Stop()
	}
	for _, s := range a.http {
		_ = s.Close()
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if a.gate != nil {
		_ = a.gate.Close(ctx)
	}
	a.spans.close()
	_ = a.closeStores()
}
