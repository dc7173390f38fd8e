package limit

import "time"

// memory is a refusal that will be the same until an instant: no trip is needed to say it again.
type memory struct {
	until   time.Time // by Redis' clock
	failure Failure
}

// remember keeps what may be repeated: a spent budget until it resets, a full rpm window until there is room. Not what
// reservations refuse, nor tpm: a smaller request may fit, and settlements give back.
func (l *Limiter) remember(f Failure) {
	switch {
	case f.Spent():
		f.Budget.spent.Store(&memory{until: f.ResetsAt, failure: f})
	case f.Kind == FailRPM && f.Limit > 0:
		f.Scope.rpmFull.Store(&memory{until: l.Now().Add(f.Wait), failure: f})
	}
}

// Remembered returns the refusal that memory already knows for these scopes, the one to name first.
func (l *Limiter) Remembered(scopes []*Scope, free bool) (Failure, bool) {
	var found Failure
	ok := false
	consider := func(m *memory, now time.Time) {
		if m == nil || !now.Before(m.until) {
			return
		}
		f := m.failure
		f.Wait = m.until.Sub(now)
		if !ok || inOrder(f, found) < 0 {
			found, ok = f, true
		}
	}
	now := l.Now()
	for _, s := range scopes {
		consider(s.rpmFull.Load(), now)
		if free {
			continue // a request that costs nothing passes an empty budget
		}
		for _, b := range s.Budgets {
			consider(b.spent.Load(), now)
		}
	}
	return found, ok
}
