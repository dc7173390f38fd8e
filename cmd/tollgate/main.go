package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // it could not be done
	exitUsage  = 2 // the command line or the configuration is wrong
)

// usageError is a mistake of the caller: the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// execute runs one command line and returns the exit code. Errors are printed, one line each.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var problems config.Problems
	if errors.As(err, &problems) {
		fmt.Fprintln(stderr, problems) // file:line: key: what is wrong; a prefix would hide the file
		return exitUsage
	}
	fmt.Fprintln(stderr, "tollgate: "+err.Error())
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tollgate",
		Short: "Govern LLM traffic inside Envoy: keys, budgets, rate limits, cache, routing",
		Long: `tollgate governs LLM traffic inside Envoy. Envoy shows it each request and response; it checks the virtual
key, budgets, rate limits and cache, picks the deployment, and afterwards settles the real cost.

  tollgate run                          everything on this machine, with a demo provider; prints the curl line to try
  tollgate run --config tollgate.yaml   the same with your models, keys and limits
  tollgate serve --config FILE          the filter alone, for an Envoy run by others
  tollgate check --config FILE          is the configuration right, and what does it say?`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usageError{fmt.Errorf("unknown command %q; see tollgate --help", args[0])}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newRun(), newServe(), newCheck(), newEnvoy(), newBench())
	return root
}

// configFlag adds --config.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "", "the configuration `file`")
}

// noArgs refuses words that no flag takes.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no argument %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())}
	}
	return nil
}

// load reads a configuration for running: what is not built yet is refused by name, never ignored.
func load(path string) (*config.Config, error) {
	cfg, err := config.Load(path, config.Options{})
	if err != nil {
		return nil, usageError{err}
	}
	if len(cfg.NotYet) > 0 {
		list := make(config.Problems, len(cfg.NotYet))
		for i, f := range cfg.NotYet {
			f.Message = "not yet: " + f.Message
			list[i] = f
		}
		return nil, usageError{list}
	}
	return cfg, nil
}
