package roundtrips

import (
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

func TestWaits(t *testing.T) {
	t.Parallel()
	at := func(server, from, to int) trip {
		begin := time.Unix(1_800_000_000, 0)
		return trip{server, tripcount.Trip{
			At: begin.Add(time.Duration(from) * time.Millisecond), Ended: begin.Add(time.Duration(to) * time.Millisecond), Done: true,
		}}
	}
	for _, tt := range []struct {
		name  string
		trips []trip
		waits int
		most  int
	}{
		{"none", nil, 0, 0},
		{"side by side", []trip{at(0, 0, 10), at(1, 1, 12), at(2, 2, 9)}, 1, 1},
		{"one after the other", []trip{at(0, 0, 10), at(1, 10, 20)}, 2, 1},
		{"one answered meanwhile", []trip{at(0, 0, 10), at(1, 1, 3), at(2, 5, 9)}, 2, 1},
		{"one server, side by side", []trip{at(0, 0, 10), at(0, 1, 11)}, 2, 2},
		{"twice two", []trip{at(0, 0, 10), at(1, 1, 11), at(0, 10, 20), at(1, 11, 21)}, 2, 2},
	} {
		if n, most := len(waits(tt.trips)), mostOfOne(tt.trips); n != tt.waits || most != tt.most {
			t.Errorf("%s: %d waits and %d trips to one server at most, want %d and %d", tt.name, n, most, tt.waits, tt.most)
		}
	}
}
