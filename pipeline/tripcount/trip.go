package tripcount

import (
	"slices"
	"sync"
	"time"
)

// argKept is how much of each argument a Trip keeps, in bytes: keys and numbers whole, a script or a cached answer cut.
const argKept = 256

// Trip is one round trip: the client sends one or more commands, then the server replies. A pipeline is one trip however
// many commands it carries, and so is a transaction sent at once.
type Trip struct {
	// Conn numbers the client's connection, from 1 in the order of acceptance.
	Conn int
	// Commands are the commands as sent, name first in the client's own letter case, each argument cut to 256 bytes.
	Commands [][]string
	// At is when the first command was read whole.
	At time.Time
	// Ended is when the last reply was about to be passed on; zero until then. What the client sends in answer to it comes
	// later.
	Ended time.Time
	// Bytes is the size of the commands on the wire; ReplyBytes that of the replies passed on so far.
	Bytes, ReplyBytes int
	// Done says that every command was answered and the answers were passed on.
	Done bool
}

// category is the highest of its commands': what asks for a key after ASKING is work.
func (t *Trip) category() category {
	highest := setup
	for _, cmd := range t.Commands {
		highest = max(highest, categorize(cmd))
	}
	return highest
}

// record is everything a proxy has seen. It is safe for concurrent use.
type record struct {
	mu    sync.Mutex
	trips []*Trip
	// last is when a byte was last read from either side.
	last time.Time
}

// touch notes that bytes passed.
func (r *record) touch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
}

// command adds a command of a connection: to the open trip, or to a new one when open is nil.
func (r *record) command(conn int, open *Trip, cmd []string, size int) *Trip {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open == nil {
		open = &Trip{Conn: conn, At: time.Now()}
		r.trips = append(r.trips, open)
	}
	open.Commands = append(open.Commands, cmd)
	open.Bytes += size
	return open
}

// reply adds the size of a reply to a trip, and ends it with its last one.
func (r *record) reply(open *Trip, size int, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	open.ReplyBytes += size
	if last {
		open.Done, open.Ended = true, time.Now()
	}
}

// snapshot copies the trips of a category.
func (r *record) snapshot(of category) []Trip {
	r.mu.Lock()
	defer r.mu.Unlock()
	var trips []Trip
	for _, trip := range r.trips {
		if trip.category() == of {
			copied := *trip
			copied.Commands = slices.Clone(trip.Commands)
			trips = append(trips, copied)
		}
	}
	return trips
}

// forget drops the trips of a connection that turned out to be between servers.
func (r *record) forget(conn int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trips = slices.DeleteFunc(r.trips, func(trip *Trip) bool { return trip.Conn == conn })
}

// idle is how long no byte has passed.
func (r *record) idle() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.last)
}

// reset forgets all trips. One that is open goes on uncounted.
func (r *record) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trips = nil
}
