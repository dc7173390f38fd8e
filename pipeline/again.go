package pipeline

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tries of what provably was not executed. One server is tried once more; in a cluster one answer can lead to the next.
// A slot that is on its way is waited for as long as there is time, and those tries do not count.
const (
	maxTries        = 2
	maxClusterTries = 8
)

// Bounds of the tries that a pause comes before.
const (
	// longestOpen is how many times longer than the first the pause becomes before a slot on its way is tried again.
	longestOpen = 10
	// shortestTry is the time that must be left for a try: one that had none would look as if the server did not answer.
	shortestTry = 5 * time.Millisecond
)

// again sends on commands that provably were not executed, with fresh commands to hold the next reply, as long as there
// is time. It is called before their share is done.
func (s *share) again(list []*declared) {
	tries := maxTries
	if s.backend.cluster != nil {
		tries = maxClusterTries
	}
	if time.Until(s.until) <= 0 {
		return
	}
	type part struct {
		way  way
		slot uint16
		list []*declared
	}
	var parts []part
next:
	for _, d := range list {
		w := s.backend.redirect(d)
		if s.tries >= tries && !w.open {
			continue
		}
		for i := range parts {
			if p := &parts[i]; p.way == w && (w.pause == 0 || p.slot == d.slot) {
				p.list = append(p.list, d)
				continue next
			}
		}
		parts = append(parts, part{w, d.slot, []*declared{d}})
	}
	s.further = make(map[*declared]*share, len(list))
	for _, p := range parts {
		pause, tried := p.way.pause, s.tries+1
		if p.way.open {
			pause, tried = pause*time.Duration(min(s.depth, longestOpen)), s.tries
		}
		if pause > 0 {
			if pause = min(pause, time.Until(s.until)-shortestTry); pause <= 0 {
				continue
			}
		}
		t := &share{
			ctx: s.ctx, backend: s.backend, kind: KindAgain, caller: s.caller, list: p.list, done: make(chan struct{}),
			depth: s.depth + 1, tries: tried, first: s.first, until: s.until,
		}
		for _, d := range p.list {
			d.renew(p.way.asking)
			s.further[d] = t
		}
		if pause == 0 {
			p.way.to.submit(t)
			continue
		}
		time.AfterFunc(pause, func() { s.backend.known(p.slot).submit(t) })
	}
}

// way is where a command goes that was not executed where it went first.
type way struct {
	to     *node
	asking bool
	pause  time.Duration // before it goes, to wherever its slot is then
	open   bool          // the slot is on its way: some of the keys are here and some there
}

// redirect finds the way.
func (b *Backend) redirect(d *declared) way {
	if b.cluster == nil {
		return way{to: b.one}
	}
	return b.cluster.redirect(d.slot, d.err)
}

// renew makes a command ready for its next try.
func (d *declared) renew(asking bool) {
	args := d.cmd.Args()
	if d.script != nil && isNoScript(d.err) {
		args = d.script.call(d.backend.dialect, true, d.keys, d.args)
	}
	d.cmd, d.asking = redis.NewCmd(context.Background(), args...), asking
}
