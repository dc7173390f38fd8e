package limit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// again marks the lease ids of groups that were asked again: what they granted at first may still be there, because
// nobody waits for its release.
const again = "~2"

// shortestPause is the least time that passes before a group is asked again. All such pauses of a request together are no
// longer than the pipeline's deadline.
const shortestPause = 5 * time.Millisecond

// pauseGrowth is how many times longer each pause is than the one before: the last question must find what others give
// back, the first only mostly does.
const pauseGrowth = 4

// contended says that the groups disagree, and only because of what other requests hold for the moment. Two requests
// can each hold the last place of one group and refuse each other, so that neither gets in although one could.
func (a *Admission) contended() bool {
	granted, refused := false, false
	for i := range a.groups {
		switch g := &a.groups[i]; {
		case g.granted():
			granted = true
		case g.passing():
			refused = true
		default:
			return false
		}
	}
	return granted && refused
}

// passing says that the group refused, and only for what other requests hold.
func (g *group) passing() bool {
	for i := range g.failures {
		if !g.failures[i].passing() {
			return false
		}
	}
	return g.refused()
}

// contend asks again in the order of homes, which all requests keep: whoever holds a place waits for none before it, so
// of those that compete for the last places one always gets on.
//
// Groups before the first that refused keep what they granted: the request holds those places in order. What groups
// behind it granted is released at once, and they are asked when their turn comes. Each group costs a wait. One that
// still refuses is asked once more for every wait that groups before it have saved, since the one who holds its last
// place may be about to release it; so the request waits as often as if all had been asked one after the other.
//
// Before the first of these questions it lets about two trips pass: whoever must release something learns that when its
// own first trip ends, and needs another for the release. Trips of other processes, on a busy machine or to a busy server,
// take longer than this request's did, so each further pause is longer. A release that takes longer than all of them can
// still cost this request a place that becomes free.
func (a *Admission) contend(ctx context.Context, d *pipeline.Deferred) {
	slices.SortStableFunc(a.groups, func(x, y group) int { return cmp.Compare(x.home, y.home) })
	first := slices.IndexFunc(a.groups, func(g group) bool { return !g.granted() })
	a.release(d, a.groups[first:])
	p := pauses{next: max(2*time.Since(a.asked), shortestPause), left: a.batch.Deadline()}
	for i, waits := first, 0; i < len(a.groups); i++ {
		g := &a.groups[i]
		for waits <= i {
			waits++
			a.limiter.pause(p.take(waits == len(a.groups)))
			a.declare(g, a.ask.ID+again, a.limiter.Now())
			a.receive(ctx, g)
			a.tellTime(ctx, a.groups[i:i+1], a.ask.ID+again)
			if !g.passing() {
				break
			}
		}
		if !g.granted() {
			a.forget(a.groups[i+1:])
			return
		}
	}
}

// pauses are those that a request makes between its questions.
type pauses struct {
	next time.Duration
	left time.Duration // for all that are still to come
}

// take is the next pause. The last one may have all that is left, others leave half of it.
func (p *pauses) take(last bool) time.Duration {
	most := p.left
	if !last {
		most /= 2
	}
	pause := min(p.next, most)
	p.next, p.left = pauseGrowth*pause, p.left-pause
	return pause
}

// forget drops what groups answered that were not asked again.
func (a *Admission) forget(groups []group) {
	for i := range groups {
		groups[i].answer, groups[i].failures = "", nil
	}
}

// release takes back what those of the groups that granted gave, by a settlement to nothing that nobody waits for. It is
// numbered behind the admission, whose reply is here, and never renewed, for the holder never had it.
func (a *Admission) release(d *pipeline.Deferred, groups []group) {
	if !slices.ContainsFunc(groups, func(g group) bool { return g.granted() }) {
		return
	}
	a.grant(groups).giveBack(d)
	for i := range groups {
		if groups[i].granted() {
			groups[i].answer = ""
		}
	}
}
