package pipeline

import (
	"sync/atomic"
	"time"
)

// breaker keeps requests from waiting on a server that does not answer. After threshold trips without an answer in a
// row it opens; then one request in each pause is let through as a probe and all others fail at once. Any answer
// closes it.
type breaker struct {
	threshold int32
	pause     time.Duration
	failures  atomic.Int32
	probeAt   atomic.Int64 // unix nanoseconds
}

// allow says whether a request may ask the server now.
func (k *breaker) allow(now time.Time) bool {
	if k.failures.Load() < k.threshold {
		return true
	}
	at := k.probeAt.Load()
	return now.UnixNano() >= at && k.probeAt.CompareAndSwap(at, now.Add(k.pause).UnixNano())
}

// report tells the breaker how a trip ended.
func (k *breaker) report(answered bool, now time.Time) {
	if answered {
		if k.failures.Load() != 0 {
			k.failures.Store(0)
		}
		return
	}
	if k.failures.Add(1) == k.threshold {
		k.probeAt.Store(now.Add(k.pause).UnixNano())
	}
}

// open says whether requests are failing at once.
func (k *breaker) open() bool { return k.failures.Load() >= k.threshold }
