// Package roundtrips measures how often a request waits for Redis.
//
// It runs the real filter on a real Redis behind counting proxies, plays Envoy's part, and counts on the wire: what a
// request waits for before its upstream is called, what it waits for afterwards, and what is written that nobody waits
// for. `tollgate bench roundtrips` prints the figures; a test of this package pins them.
//
// Where there are several servers, each has a proxy of its own. Trips to different servers are one wait when each began
// before any of them was answered: none can then depend on another's answer. So that a busy machine does not make one
// wait look like two, every trip to one of several servers takes a tenth of a second longer while it is counted. What
// nobody waits for is counted as the trips that any one server gets at most.
package roundtrips
