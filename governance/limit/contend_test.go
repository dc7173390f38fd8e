package limit

import (
	"slices"
	"testing"
	"time"
)

// The pauses grow, the last one may take what is left of the deadline, and together they never exceed it.
func TestPauses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		first time.Duration
		want  []time.Duration // with a deadline of 100 ms
	}{
		{"one", 5, []time.Duration{5}},
		{"growing", 5, []time.Duration{5, 20}},
		{"many", 5, []time.Duration{5, 20, 38, 19, 19}},
		{"slow", 40, []time.Duration{40, 60}},
		{"slower than the deadline", 300, []time.Duration{50, 50}},
	} {
		p := pauses{next: tt.first * time.Millisecond, left: 100 * time.Millisecond}
		var got []time.Duration
		for i := range tt.want {
			got = append(got, p.take(i == len(tt.want)-1).Round(time.Millisecond)/time.Millisecond)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %d ms, want %d", tt.name, got, tt.want)
		}
	}
}
