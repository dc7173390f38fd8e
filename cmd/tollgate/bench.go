package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/roundtrips"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure tollgate itself",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRoundTrips())
	return cmd
}

func newRoundTrips() *cobra.Command {
	var url, format string
	var commands bool
	cmd := &cobra.Command{
		Use:   "roundtrips",
		Short: "Count how often a request waits for Redis",
		Long: `roundtrips sends requests of each shape through the filter on a real Redis and counts, on the wire, what is waited for
before the upstream is called, what is waited for afterwards, and what is written when the stream has closed. Beside
them stand the figures that LiteLLM's proxy published for its own rework.

It needs nothing but a Redis: the one at --redis, else a redis-server found on PATH, which it starts and stops. Its keys
have a prefix of their own.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, ok := formats[format]
			if !ok {
				return usageError{fmt.Errorf("--format must be table, md or json, not %q", format)}
			}
			addr, stop, err := benchRedis(cmd.Context(), url)
			if err != nil {
				return err
			}
			defer stop()
			shapes, err := roundtrips.Measure(cmd.Context(), addr, func(name string) {
				fmt.Fprintln(cmd.ErrOrStderr(), "measuring: "+name)
			})
			if err != nil {
				return fmt.Errorf("measure: %w", err)
			}
			if commands {
				printCommands(cmd.ErrOrStderr(), shapes)
			}
			return show(cmd.OutOrStdout(), shapes)
		},
	}
	cmd.Flags().StringVar(&url, "redis", "", "a redis:// `url` without credentials (default: a redis-server of its own)")
	cmd.Flags().StringVar(&format, "format", "table", "table, md (Markdown) or json (one object a line)")
	cmd.Flags().BoolVar(&commands, "commands", false, "print the commands of each trip")
	return cmd
}

// formats are how the figures are printed.
var formats = map[string]func(io.Writer, []roundtrips.Shape) error{
	"table": func(w io.Writer, list []roundtrips.Shape) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "request\twaits before\twaits after\twritten after\tLiteLLM, before -> after its rework")
		for _, s := range list {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\n", s.Name, s.Before, s.WaitedAfter, s.WrittenAfter, s.LiteLLM)
		}
		return t.Flush()
	},
	"md": func(w io.Writer, list []roundtrips.Shape) error {
		fmt.Fprintln(w, "| request | waits before the model call | waits after it | written after, nobody waits | LiteLLM, before -> after its rework |")
		fmt.Fprintln(w, "|---|---|---|---|---|")
		for _, s := range list {
			if _, err := fmt.Fprintf(w, "| %s | %d | %d | %d | %s |\n", s.Name, s.Before, s.WaitedAfter, s.WrittenAfter, s.LiteLLM); err != nil {
				return err
			}
		}
		return nil
	},
	"json": func(w io.Writer, list []roundtrips.Shape) error {
		for _, s := range list {
			b, err := json.Marshal(s)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s\n", b); err != nil {
				return err
			}
		}
		return nil
	},
}

func printCommands(w io.Writer, list []roundtrips.Shape) {
	for _, s := range list {
		for i, trip := range s.Trips {
			fmt.Fprintf(w, "%s, trip %d: %v\n", s.Name, i+1, trip)
		}
	}
}

// redisAddress is the host:port of a redis:// URL. The bench puts a proxy of its own in between, which passes no TLS.
func redisAddress(url string) (string, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return "", usageError{fmt.Errorf("--redis: %w", err)}
	}
	if opt.TLSConfig != nil || opt.Username != "" || opt.Password != "" {
		return "", usageError{errors.New("--redis: only a plain redis:// URL without credentials can be counted")}
	}
	if opt.Network == "unix" {
		return "unix:" + opt.Addr, nil
	}
	return opt.Addr, nil
}
