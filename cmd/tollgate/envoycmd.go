package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tollgate-proxy/tollgate/envoy"
)

func newEnvoy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Render what Envoy needs to be governed",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBootstrap())
	return cmd
}

func newBootstrap() *cobra.Command {
	var path, processor, accessLog, admin string
	cmd := &cobra.Command{
		Use:   "bootstrap --config FILE",
		Short: "Print an Envoy configuration with listener, routes, clusters and the filter",
		Long: `bootstrap prints a whole configuration for an Envoy 1.40: the gateway's listener, the ext_proc filter with settings
that suit LLM traffic, the routes, and one cluster for each deployment. Comments explain each default that it changes.
It holds no credential: tollgate puts them on each request.

  tollgate envoy bootstrap --config tollgate.yaml > envoy.yaml
  envoy --mode validate -c envoy.yaml
  tollgate serve --config tollgate.yaml & envoy -c envoy.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usageError{errors.New("envoy bootstrap needs --config FILE")}
			}
			cfg, err := load(path)
			if err != nil {
				return err
			}
			if processor == "" {
				processor = cfg.Listen.ExtProc
			}
			out, err := envoy.Bootstrap(cfg, envoy.BootstrapOptions{
				Options: envoy.Options{AccessLog: accessLog}, Processor: envoy.Upstream{Address: processor}, Admin: admin,
			})
			if err != nil {
				return fmt.Errorf("bootstrap: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&processor, "extproc", "", "where Envoy reaches tollgate: `address`, or unix:/path (default: listen.extproc)")
	cmd.Flags().StringVar(&accessLog, "access-log", "", "`file` for a JSON line a request; /dev/stdout works (default: none)")
	cmd.Flags().StringVar(&admin, "admin", "", "Envoy's admin interface: a loopback `address` or unix:/path (default: off)")
	return cmd
}
