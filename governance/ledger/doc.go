// Package ledger holds the spend record: what one admitted request asked, used and cost.
//
// A record is appended to a Redis stream by the settlement script itself, so that it is written exactly as often as the
// counters move: once. The package owns the record's shape and the running totals of this process; it imports usage.
package ledger
