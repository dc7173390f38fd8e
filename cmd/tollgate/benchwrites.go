package main

import (
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/writes"
)

// benchGC is the collector's setting while writes are measured. The client, the proxy, and all that the proxy keeps of
// what has passed are one heap here, which begins small and which no deployment has: at 100 the collector would walk it
// at each of its first doublings, on the cores that Redis needs. It is the same for each way of writing.
const benchGC = 400

func newWrites() *cobra.Command {
	var flags benchFlags
	var count int
	var rtt time.Duration
	cmd := &cobra.Command{
		Use:   "writes",
		Short: "Time one write a user: one by one, in one pipeline, deferred",
		Long: `writes writes one value for each of many users, in three ways, on a real Redis behind a proxy that makes each round
trip as long as --rtt: one by one, each waited for; in one pipeline; and through the deferred batch by which tollgate
writes what nobody waits for. It looks afterwards whether every value is there, once, and fails otherwise. What takes
less than two seconds is repeated, up to five times, and the fastest run counts. Beside the times stand those that a Java
comparison published for 100,000 writes.

It needs nothing but a Redis: the one at --redis, else a redis-server found on PATH, which it starts and stops. Its keys
have a prefix of their own, and are deleted. One by one, 100,000 writes of 1 ms take about two minutes.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := flags.show()
			if err != nil {
				return err
			}
			if count < 1 {
				return usageError{fmt.Errorf("--count must be at least 1, not %d", count)}
			}
			if rtt < 0 || rtt > time.Second {
				return usageError{fmt.Errorf("--rtt must be between 0 and 1s, not %v", rtt)}
			}
			addr, stop, err := benchRedis(cmd.Context(), flags.url)
			if err != nil {
				return err
			}
			defer stop()
			defer debug.SetGCPercent(debug.SetGCPercent(benchGC))
			results, err := writes.Measure(cmd.Context(), writes.Options{
				Addr: addr, Count: count, RTT: rtt,
				Progress: func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "measuring: "+text) },
			})
			if err != nil {
				return fmt.Errorf("measure: %w", err)
			}
			return show(cmd.OutOrStdout(), writesReport(results))
		},
	}
	flags.add(cmd)
	cmd.Flags().IntVar(&count, "count", 100_000, "how many users, one write each")
	cmd.Flags().DurationVar(&rtt, "rtt", time.Millisecond, "the `time` that a round trip takes longer, at most 1s")
	return cmd
}

func writesReport(list []writes.Result) report {
	r := report{
		short:  []string{"how", "time", "times faster", "trips", "published", "times faster"},
		header: []string{"how", "time", "times faster", "round trips", "published for 100,000", "times faster"},
	}
	for _, x := range list {
		r.rows = append(r.rows, []string{
			x.Title, thousands(x.MS) + " ms", thousands(x.Ratio), thousands(float64(x.Trips)),
			fmt.Sprintf("%s: %s ms", x.PublishedTitle, thousands(x.PublishedMS)), thousands(x.PublishedRatio),
		})
		r.lines = append(r.lines, x)
	}
	return r
}

// thousands is a number rounded to a whole one, in groups of three digits; below ten with one decimal.
func thousands(v float64) string {
	if v < 9.95 {
		return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
	s := strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
