package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/demo"
	"github.com/tollgate-proxy/tollgate/envoy"
	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/identity"
)

func newRun() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "run [--config FILE]",
		Short: "Run everything on this machine: the filter, an Envoy, a store",
		Long: `run starts the filter, an Envoy (from $TOLLGATE_ENVOY or PATH) that it programs, and, where no redis.url is set, an
in-process store that keeps nothing across restarts. Without a deployment in the configuration it adds a demo provider
with a model and a key of its own, and prints the curl line to try.

Ctrl-C lets running requests finish, settles them, stops everything and says what was spent.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), path, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// local is everything that `run` starts beside the filter itself.
type local struct {
	cfg     *config.Config
	dir     string // of the Unix sockets
	app     *app
	envoy   *envoy.Local
	demo    *http.Server // nil when the configuration has deployments
	demoAt  string
	gateway string // where Envoy really listens
	secret  string // of the demo key
	output  *gated // of Envoy
}

func run(ctx context.Context, path string, stdout, stderr io.Writer) error {
	cfg := config.Default()
	if path != "" {
		var err error
		if cfg, err = load(path); err != nil {
			return err
		}
	} else {
		cfg.Log.Format = "text"
		cfg.Log.Level = "warn"
	}
	l := &local{cfg: cfg}
	log := newLog(stderr, cfg.Log)
	if err := l.start(ctx, log, stderr); err != nil {
		_ = l.stop(time.Second) // what matters is why it did not start
		return err
	}
	l.announce(stdout)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	if path != "" {
		go config.Watch(watching, path, config.Options{Current: cfg}, time.Second, l.apply, log)
	}
	var failed error
	select {
	case <-ctx.Done():
		fmt.Fprintln(stdout, "\nstopping: running requests finish first")
	case failed = <-l.app.failed:
	case <-l.envoy.Done():
		failed = l.envoy.Err()
	}
	cancel()
	err := errors.Join(failed, l.stop(cfg.Drain))
	summarize(stdout, l.app.gate.Totals())
	return err
}

// start brings everything up; what was started is ended by stop, also after an error.
func (l *local) start(ctx context.Context, log *slog.Logger, stderr io.Writer) error {
	if _, err := envoy.FindBinary(""); err != nil {
		return err
	}
	var err error
	if l.dir, err = os.MkdirTemp("", "tollgate-"); err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	if !hasDeployment(l.cfg) {
		if err := l.startDemo(); err != nil {
			return err
		}
		l.cfg.AddDemo(l.demoAt, l.secret)
	}
	sockets := addresses{
		extproc: "unix:" + filepath.Join(l.dir, "extproc.sock"), xds: "unix:" + filepath.Join(l.dir, "xds.sock"),
		health: l.cfg.Listen.Health, admin: l.cfg.Listen.Admin,
	}
	if l.app, err = newApp(l.cfg, sockets, log); err != nil {
		return err
	}
	boot, err := envoy.Bootstrap(l.cfg, envoy.BootstrapOptions{
		Processor: envoy.Upstream{Address: sockets.extproc}, XDS: envoy.Upstream{Address: sockets.xds},
	})
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	l.output = &gated{to: stderr}
	if l.envoy, err = envoy.Start(ctx, envoy.LocalOptions{Bootstrap: boot, Gateway: l.cfg.Gateway.Address, Output: l.output}); err != nil {
		return err
	}
	at, err := l.envoy.Addresses(ctx)
	if err != nil {
		return err
	}
	l.gateway = at[0]
	return nil
}

// gated passes Envoy's log on until it is closed: what Envoy warns of while it is being stopped is no news.
type gated struct {
	to     io.Writer
	closed atomic.Bool
}

// Write implements io.Writer.
func (g *gated) Write(b []byte) (int, error) {
	if g.closed.Load() {
		return len(b), nil
	}
	return g.to.Write(b)
}

func hasDeployment(cfg *config.Config) bool {
	for _, m := range cfg.Models {
		if len(m.Deployments) > 0 {
			return true
		}
	}
	return false
}

// startDemo starts the built-in provider on a free port and makes a key for it.
func (l *local) startDemo() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("demo provider: %w", err)
	}
	if l.secret, err = identity.NewSecret(); err != nil {
		return fmt.Errorf("demo key: %w", err)
	}
	l.demoAt = "http://" + listener.Addr().String() + "/v1"
	l.demo = &http.Server{Handler: demo.New(demo.Options{}), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = l.demo.Serve(listener) }() // until it is closed
	return nil
}

// apply puts a changed configuration in force, with the demo where it still has no deployment.
func (l *local) apply(cfg *config.Config) {
	if l.demo != nil && !hasDeployment(cfg) {
		cfg.AddDemo(l.demoAt, l.secret)
	}
	l.app.apply(cfg)
}

// stop ends everything in order: Envoy takes no more requests and finishes those it has, then the filter settles and
// writes, then the rest goes.
func (l *local) stop(grace time.Duration) error {
	var errs []error
	if l.envoy != nil {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		if l.envoy.Err() == nil {
			errs = append(errs, l.envoy.Drain(ctx))
		}
		cancel()
		l.output.closed.Store(true)
		l.envoy.Stop()
	}
	if l.app != nil {
		errs = append(errs, l.app.shutdown(grace))
	}
	if l.demo != nil {
		errs = append(errs, l.demo.Close())
	}
	if l.dir != "" {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}
