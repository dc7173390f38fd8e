package governance

import (
	"testing"
	"time"
)

func TestSeldom(t *testing.T) {
	t.Parallel()
	var s seldom
	start := time.Unix(1000, 0)
	for _, tt := range []struct {
		at     time.Duration
		unsaid int
		ok     bool
	}{{0, 0, true}, {1, 0, false}, {999 * time.Millisecond, 0, false}, {time.Second, 2, true}, {3 * time.Second, 0, true}} {
		if unsaid, ok := s.now(start.Add(tt.at)); unsaid != tt.unsaid || ok != tt.ok {
			t.Errorf("at %s: %d, %t; want %d, %t", tt.at, unsaid, ok, tt.unsaid, tt.ok)
		}
	}
}
