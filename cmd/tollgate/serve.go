package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

func newServe() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run the filter alone, for an Envoy run by others",
		Long: `serve runs the ext_proc server on listen.extproc for an Envoy that somebody else runs, and on listen.xds, when that
is set, the xDS server that programs a plain Envoy. /metrics, /healthz and /readyz are on listen.health.

The configuration file is read again when it changes; a bad new version is logged and refused. SIGTERM drains: not
ready, no new streams, running ones finish within the setting drain, everything that is to be written is.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usageError{errors.New("serve needs --config FILE")}
			}
			cfg, err := load(path)
			if err != nil {
				return err
			}
			log := newLog(cmd.ErrOrStderr(), cfg.Log)
			a, err := newApp(cfg, addresses{
				extproc: cfg.Listen.ExtProc, xds: cfg.Listen.XDS, health: cfg.Listen.Health, admin: cfg.Listen.Admin,
			}, log)
			if err != nil {
				return err
			}
			log.Info("serving", "extproc", a.bound["extproc"], "xds", a.bound["xds"], "health", a.bound["health"], "admin", a.bound["admin"])
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go config.Watch(ctx, path, config.Options{Current: cfg}, time.Second, a.apply, log)
			select {
			case <-cmd.Context().Done():
				log.Info("draining", "grace", cfg.Drain.String())
			case err := <-a.failed:
				return errors.Join(err, a.shutdown(0))
			}
			return a.shutdown(cfg.Drain)
		},
	}
	configFlag(cmd, &path)
	return cmd
}
