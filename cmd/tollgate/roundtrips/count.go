package roundtrips

import (
	"slices"
	"strings"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

const (
	// quiet is how long nothing may pass before a count is taken.
	quiet = 60 * time.Millisecond
	// apart is how much longer a trip to one of several servers takes while it is counted: what is sent to all of them at
	// the same time has been sent, on a busy machine too, before the first of them answers.
	apart = 100 * time.Millisecond
	// longest bounds the wait for what is under way.
	longest = 10 * time.Second
)

// trip is a round trip to one of the servers.
type trip struct {
	server int
	tripcount.Trip
}

// count waits until nothing passes any more and returns the trips in the order they began, but for those of the process'
// own upkeep, which belong to no request.
func (b *bench) count() []trip {
	time.Sleep(quiet) // what nobody should send has its chance
	for end := time.Now().Add(longest); b.busy() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	for _, p := range b.proxies {
		p.WaitQuiet(quiet)
	}
	return b.trips()
}

// busy says that something is still to be written or answered.
func (b *bench) busy() bool {
	return b.gate.Pending() > 0 || slices.ContainsFunc(b.trips(), func(t trip) bool { return !t.Done })
}

func (b *bench) trips() []trip {
	var list []trip
	for i, p := range b.proxies {
		for _, t := range p.Trips() {
			if !upkeep(t.Commands) {
				list = append(list, trip{i, t})
			}
		}
	}
	slices.SortStableFunc(list, func(x, y trip) int { return x.At.Compare(y.At) })
	return list
}

func upkeep(commands [][]string) bool {
	return slices.ContainsFunc(commands, func(cmd []string) bool {
		return strings.EqualFold(cmd[0], "script") || strings.EqualFold(cmd[0], "info") || len(cmd) > 1 && strings.HasSuffix(cmd[1], ":replicas")
	})
}

// splitWritten tells trips that are waited for from those of the deferred pipeline, which settle, and so name their writer.
// One may leave before the upstream is called: when a grant is given back.
func splitWritten(trips []trip) (waited, written []trip) {
	for _, t := range trips {
		if slices.ContainsFunc(t.Commands, func(cmd []string) bool { return strings.Contains(describe(cmd), "}:w:") }) {
			written = append(written, t)
		} else {
			waited = append(waited, t)
		}
	}
	return waited, written
}

// wait is what is waited for at the same time: trips to different servers.
type wait []trip

// waits puts trips together, which must be in the order they began. A trip that begins before any of a wait has been
// answered depends on none of them, so whoever sent them waits for all of them once. Two to one server are two waits all
// the same: they could have been one pipeline.
func waits(trips []trip) []wait {
	var list []wait
	for _, t := range trips {
		if n := len(list); n > 0 && list[n-1].takes(t) {
			list[n-1] = append(list[n-1], t)
		} else {
			list = append(list, wait{t})
		}
	}
	return list
}

func (w wait) takes(t trip) bool {
	return !slices.ContainsFunc(w, func(other trip) bool { return other.server == t.server || !t.At.Before(other.Ended) })
}

func (w wait) commands() []string {
	var names []string
	for _, t := range w {
		for _, cmd := range t.Commands {
			names = append(names, describe(cmd))
		}
	}
	return names
}

// mostOfOne is how many of the trips go to one server at most.
func mostOfOne(trips []trip) int {
	most, of := 0, map[int]int{}
	for _, t := range trips {
		of[t.server]++
		most = max(most, of[t.server])
	}
	return most
}

// describe is a command by its name and its first key.
func describe(cmd []string) string {
	name := strings.ToUpper(cmd[0])
	key := 1
	if name == "EVALSHA" || name == "EVAL" {
		key = 3
	}
	if len(cmd) > key {
		return name + " " + cmd[key]
	}
	return name
}
