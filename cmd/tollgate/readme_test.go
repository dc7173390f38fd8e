package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/roundtrips"
	"github.com/tollgate-proxy/tollgate/cmd/tollgate/writes"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// The README shows what the command measures, not what it once measured.
func TestReadmeShowsWhatIsMeasured(t *testing.T) {
	t.Parallel()
	table := readmeTable(t, "tollgate bench roundtrips --format md")
	r := roundtrips.Redis{Addr: redistest.Start(t).Addr()}
	for _, n := range redistest.StartCluster(t, redistest.Proxied).Nodes {
		r.Cluster = append(r.Cluster, n.Proxy)
	}
	shapes, err := roundtrips.Measure(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := markdown(t, roundTripsReport(shapes)); table != want {
		t.Errorf("README.md shows\n%s\nmeasured is\n%s", table, want)
	}
}

// Times are another each run. The table is the one that the command prints all the same, with the same figures of others.
func TestReadmeShowsTheTableOfWrites(t *testing.T) {
	t.Parallel()
	results, err := writes.Measure(t.Context(), writes.Options{Addr: redistest.Start(t).Addr(), Count: 10})
	if err != nil {
		t.Fatal(err)
	}
	got := withoutFigures(readmeTable(t, "tollgate bench writes --format md"))
	if want := withoutFigures(markdown(t, writesReport(results))); got != want {
		t.Errorf("README.md shows, but for the figures measured\n%s\nthe command prints\n%s", got, want)
	}
}

// readmeTable is the table between the comment that names its command and the next one.
func readmeTable(t *testing.T, command string) string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(readme), "<!-- "+command+" -->\n")
	table, _, ended := strings.Cut(table, "<!-- end -->")
	if !found || !ended {
		t.Fatalf("README.md has no table of %s between its two comments", command)
	}
	return table
}

func markdown(t *testing.T, r report) string {
	t.Helper()
	var b bytes.Buffer
	if err := formats["md"](&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// withoutFigures blanks what is measured in a table of writes: the second to the fourth column of its rows.
func withoutFigures(table string) string {
	lines := strings.Split(table, "\n")
	for i, line := range lines {
		if cells := strings.Split(line, "|"); i > 1 && len(cells) > 4 {
			lines[i] = strings.Join(append(cells[:2:2], cells[5:]...), "|")
		}
	}
	return strings.Join(lines, "\n")
}
