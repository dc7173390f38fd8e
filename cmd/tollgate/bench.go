package main

import (
	"fmt"
	"io"
	"strconv"

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
	cmd.AddCommand(newRoundTrips(), newWrites())
	return cmd
}

func newRoundTrips() *cobra.Command {
	var flags benchFlags
	var commands bool
	cmd := &cobra.Command{
		Use:   "roundtrips",
		Short: "Count how often a request waits for Redis",
		Long: `roundtrips sends requests of each shape through the filter on a real Redis and counts, on the wire, what is waited for
before the upstream is called, what is waited for afterwards, and what is written that nobody waits for. Beside them
stand the figures that LiteLLM's proxy published for its own rework.

Of several servers, a proxy before each counts. Trips to different servers that each began before any of them was
answered are one wait; they are made a tenth of a second longer, so that this shows. What is written is counted as the
pipelines that any one server gets at most.

It needs nothing but redis-server, found on PATH: it starts and stops one, and three that are a Redis Cluster. With
--redis that server is measured on, and no cluster. Its keys have a prefix of their own; it is made to forget its
scripts, which their owners send again.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := flags.show()
			if err != nil {
				return err
			}
			addr, stop, err := benchRedis(cmd.Context(), flags.url)
			if err != nil {
				return err
			}
			defer stop()
			redis := roundtrips.Redis{Addr: addr}
			if flags.url == "" {
				cluster, err := startBenchCluster(cmd.Context())
				if err != nil {
					return err
				}
				defer cluster.stop()
				redis.Cluster = cluster.proxies()
			}
			shapes, err := roundtrips.Measure(cmd.Context(), redis, func(name string) {
				fmt.Fprintln(cmd.ErrOrStderr(), "measuring: "+name)
			})
			if err != nil {
				return fmt.Errorf("measure: %w", err)
			}
			if commands {
				printCommands(cmd.ErrOrStderr(), shapes)
			}
			return show(cmd.OutOrStdout(), roundTripsReport(shapes))
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&commands, "commands", false, "print the commands of each trip")
	return cmd
}

func roundTripsReport(list []roundtrips.Shape) report {
	r := report{
		short: []string{"request", "store", "waits before", "waits after", "written after", "LiteLLM, before -> after its rework"},
		header: []string{
			"request", "store", "waits before the model call", "waits after it", "written after, nobody waits",
			"LiteLLM, before -> after its rework",
		},
	}
	for _, s := range list {
		r.rows = append(r.rows, []string{
			s.Name, s.Store, strconv.Itoa(s.Before), strconv.Itoa(s.WaitedAfter), strconv.Itoa(s.WrittenAfter), s.LiteLLM,
		})
		r.lines = append(r.lines, s)
	}
	return r
}

func printCommands(w io.Writer, list []roundtrips.Shape) {
	for _, s := range list {
		for i, trip := range s.Trips {
			fmt.Fprintf(w, "%s, trip %d: %v\n", s.Name, i+1, trip)
		}
	}
}
