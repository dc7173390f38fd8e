package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

func newCheck() *cobra.Command {
	var path string
	var static bool
	cmd := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Validate a configuration and explain it",
		Long: `check reads a configuration as run and serve would, prints every mistake with file, line and key, and explains
what the configuration says: listeners, models and their deployments, keys and teams with their limits. It also lists
the keys that this version accepts but does not act on yet; run and serve refuse those.

Variables that are unset and files that are absent are mistakes, except with --static: use that where the secrets are
not at hand, as in CI.

Exit codes: 0 the configuration is right, 2 it is not.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usageError{errors.New("check needs --config FILE")}
			}
			cfg, err := config.Load(path, config.Options{Static: static})
			if err != nil {
				return usageError{err}
			}
			if err := cfg.Explain(cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("print the explanation: %w", err)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&static, "static", false, "allow unset variables and absent files")
	return cmd
}
