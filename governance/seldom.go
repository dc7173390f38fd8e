package governance

import (
	"sync"
	"time"
)

// seldom lets an event through once a second and counts the others: an outage is one line a second in the log, not one
// a request. The zero value is ready; it is safe for concurrent use.
type seldom struct {
	mu     sync.Mutex
	last   time.Time
	unsaid int
}

// now says whether the event may be told now, and how many were not since the last that was.
func (s *seldom) now(t time.Time) (unsaid int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Sub(s.last) < time.Second {
		s.unsaid++
		return 0, false
	}
	unsaid, s.unsaid, s.last = s.unsaid, 0, t
	return unsaid, true
}
