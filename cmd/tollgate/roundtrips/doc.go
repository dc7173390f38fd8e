// Package roundtrips measures how often a request waits for Redis.
//
// It runs the real filter on a real Redis behind a counting proxy, plays Envoy's part, and counts on the wire: what a
// request waits for before its upstream is called, what it waits for afterwards, and what is written that nobody waits
// for. `tollgate bench roundtrips` prints the figures; a test of this package pins them.
package roundtrips
