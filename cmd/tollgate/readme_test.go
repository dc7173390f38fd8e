package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/roundtrips"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// The README shows what the command measures, not what it once measured.
func TestReadmeShowsWhatIsMeasured(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(readme), "<!-- tollgate bench roundtrips --format md -->\n")
	table, _, ended := strings.Cut(table, "<!-- end -->")
	if !found || !ended {
		t.Fatal("README.md has no table of round trips between its two comments")
	}
	shapes, err := roundtrips.Measure(t.Context(), redistest.Start(t).Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := formats["md"](&want, shapes); err != nil {
		t.Fatal(err)
	}
	if table != want.String() {
		t.Errorf("README.md shows\n%s\nmeasured is\n%s", table, &want)
	}
}
