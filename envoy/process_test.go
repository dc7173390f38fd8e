package envoy

import (
	"strings"
	"testing"
)

// TestTail keeps the last lines whole, however they are written.
func TestTail(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	kept := &tail{to: &out}
	for _, piece := range []string{"1\n2\n3\n", "4\n5", "\n6\n7 and no end"} {
		if n, err := kept.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Errorf("wrote %d of %d: %v", n, len(piece), err)
		}
	}
	if got, want := kept.String(), "2; 3; 4; 5; 6"; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
	if got, want := out.String(), "1\n2\n3\n4\n5\n6\n7 and no end"; got != want {
		t.Errorf("passed on %q, want %q", got, want)
	}
	if _, err := kept.Write([]byte(strings.Repeat("x", 1<<20))); err != nil || len(kept.rest) > tailLineSize {
		t.Errorf("a line without an end holds %d bytes, error %v", len(kept.rest), err)
	}
}
