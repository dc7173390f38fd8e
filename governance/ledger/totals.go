package ledger

import "sync/atomic"

// Totals are what this process has settled since it started. The zero value is ready; it is safe for concurrent use.
type Totals struct {
	requests, hits, input, output, nano atomic.Int64
}

// Sum is one reading of Totals.
type Sum struct {
	Requests, CacheHits, InputTokens, OutputTokens, Nano int64
}

// Add counts a record.
func (t *Totals) Add(r *Record) {
	t.requests.Add(1)
	if r.Outcome == CacheHit {
		t.hits.Add(1)
	}
	t.input.Add(r.Input)
	t.output.Add(r.Output)
	t.nano.Add(r.CostNano)
}

// Sum reads the totals.
func (t *Totals) Sum() Sum {
	return Sum{t.requests.Load(), t.hits.Load(), t.input.Load(), t.output.Load(), t.nano.Load()}
}
