package governance

import (
	"testing"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// An estimate that has proved right must stay as it is: one token more would refuse the request that just fits.
func TestLearnedKeepsRightEstimates(t *testing.T) {
	t.Parallel()
	var l learned
	for range 100 {
		l.see("right", 50, usage.Usage{Input: 50, Output: 10}, 40)
		l.see("low", 50, usage.Usage{Input: 60, Output: 10}, 40)
	}
	if n := l.input("right", 50); n != 50 {
		t.Errorf("estimate of 50 became %d", n)
	}
	if n := l.input("low", 50); n != 60 {
		t.Errorf("estimate of 50 became %d, want 60", n)
	}
}
