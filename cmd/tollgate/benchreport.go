package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
)

// report is what a bench prints.
type report struct {
	short  []string // the header in a terminal
	header []string // the header in Markdown
	rows   [][]string
	lines  []any // in JSON, one object a row
}

// formats are how a report is printed.
var formats = map[string]func(io.Writer, report) error{
	"table": func(w io.Writer, r report) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, strings.Join(r.short, "\t"))
		for _, row := range r.rows {
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
		return t.Flush()
	},
	"md": func(w io.Writer, r report) error {
		lines := []string{"| " + strings.Join(r.header, " | ") + " |", strings.Repeat("|---", len(r.header)) + "|"}
		for _, row := range r.rows {
			lines = append(lines, "| "+strings.Join(row, " | ")+" |")
		}
		_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
		return err
	},
	"json": func(w io.Writer, r report) error {
		for _, line := range r.lines {
			b, err := json.Marshal(line)
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

// benchFlags are what every bench takes.
type benchFlags struct{ url, format string }

func (f *benchFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "redis", "", "a redis:// `url` without credentials (default: a redis-server of its own)")
	cmd.Flags().StringVar(&f.format, "format", "table", "table, md (Markdown) or json (one object a line)")
}

// show is how the report is to be printed.
func (f *benchFlags) show() (func(io.Writer, report) error, error) {
	if show, ok := formats[f.format]; ok {
		return show, nil
	}
	return nil, usageError{fmt.Errorf("--format must be table, md or json, not %q", f.format)}
}
