package pipeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bounds of merging. A few trips under way keep a server busy that is near while the next are gathered; more would only
// queue in it. Where a trip spends its time on the way, more of them are under way, so that few wait for a turn. A trip
// stays small enough that a server which is merely busy answers within the deadline.
const (
	nearSenders = 4
	maxSenders  = 16
	near        = 300 * time.Microsecond // a trip to a server in the same machine or rack
	maxMerged   = 64                     // batches a trip
)

// Bounds of trips that are late. Their callers have gone on without them; they are read to the end, so that what arrives
// late finds its owner.
const (
	maxLate  = 4
	patience = 5 * time.Second
)

// merger lets the batches of concurrent requests share trips to a server. A batch that finds a place leaves at once;
// batches that come while as many trips are under way as may be gather, and leave together with the next one.
//
// So the deadline bounds the wait for the server, not the wait for a turn: a burst that the server works off is late, but
// served, and a server that does not answer fails the trips under way and, by the breaker, all that wait.
type merger struct {
	mu      sync.Mutex
	senders int
	waiting []*share
}

// share is one batch's part of a trip to one server.
type share struct {
	ctx     context.Context //nolint:containedctx // for the trace: the trip outlives the call
	backend *Backend
	kind    Kind
	caller  string
	since   time.Time // when it was handed in; for the trace
	list    []*declared
	done    chan struct{}        // closed when each command has its result, or has been sent once more
	depth   int                  // 1, and one more with each further try
	tries   int                  // as depth, but for those that waited for a slot on its way
	first   *share               // of the same batch: depths are counted there
	until   time.Time            // when its time is over; set when the first try is sent
	waited  int                  // of the first: the greatest depth waited for; the owner's
	further map[*declared]*share // what carries the commands that are sent once more; nil for most
}

// submit hands a share in: it leaves at once, or with others. It does not block.
func (n *node) submit(s *share) {
	if n.enter(s) {
		go n.send([]*share{s})
	}
}

// carry does the same for a caller that has nothing else to do than wait: where there is a place, it sends the share on its
// own goroutine, and nobody has to be woken for it. But then it cannot leave before the trip is over, and the deadline
// ends the trip. So a server that has been slow lately is asked by submit: what it answers late is still read.
func (n *node) carry(s *share) {
	switch {
	case !n.enter(s):
	case n.keepLate || n.slow(time.Now()):
		go n.send([]*share{s})
	default:
		n.trip([]*share{s}, true)
		if next := n.next(); next != nil {
			go n.send(next)
		}
	}
}

// enter takes a sender's place, or puts the share in line and returns false.
func (n *node) enter(s *share) bool {
	s.since = n.tracer.now()
	m := &n.merger
	m.mu.Lock()
	defer m.mu.Unlock()
	most := maxSenders
	if n.pace.Load() < int64(near) {
		most = nearSenders
	}
	if m.senders >= most {
		m.waiting = append(m.waiting, s)
		return false
	}
	m.senders++
	return true
}

// slowFor is how long a server is taken for slow after a trip took half the deadline or more.
const slowFor = 10 * time.Second

func (n *node) slow(now time.Time) bool { return now.UnixNano() < n.slowUntil.Load() }

// took notes how long a trip was. The pace follows the quickest at once and the others slowly: those wait for the server,
// or for a connection, and that says nothing about the way to it.
func (n *node) took(began time.Time) {
	now := time.Now()
	took, pace := now.Sub(began), n.pace.Load()
	if int64(took) > pace && pace > 0 {
		n.pace.Store(pace + (int64(took)-pace)/64)
	} else {
		n.pace.Store(int64(took))
	}
	if took >= n.deadline/2 {
		n.slowUntil.Store(now.Add(slowFor).UnixNano())
	}
}

// send sends trips as long as anything waits: it holds a sender's place.
func (n *node) send(group []*share) {
	for group != nil {
		if !n.trip(group, false) {
			return // it was late, and another has the place
		}
		group = n.next()
	}
}

// next takes what goes with the next trip, or gives the sender's place back. A further try goes alone: it has less time
// than the others.
func (n *node) next() []*share {
	m := &n.merger
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 {
		m.senders--
		return nil
	}
	size := 1
	for size < len(m.waiting) && size < maxMerged && m.waiting[0].depth == 1 && m.waiting[size].depth == 1 {
		size++
	}
	group := make([]*share, size)
	copy(group, m.waiting)
	left := copy(m.waiting, m.waiting[size:])
	clear(m.waiting[left:])
	m.waiting = m.waiting[:left]
	return group
}

// trip sends the shares of a group as one pipeline and hands out the replies. It returns false when the deadline passed
// first: then the callers have their error, and somebody else has the sender's place. A trip on its caller's own goroutine
// ends at the deadline instead.
func (n *node) trip(group []*share, own bool) bool {
	now := time.Now()
	if !n.breaker.allow(now) {
		for _, s := range group {
			s.fail(errBreaker)
		}
		n.inTrouble()
		return true
	}
	wait := n.deadline
	if u := group[0].until; !u.IsZero() {
		wait = u.Sub(now)
	}
	for _, s := range group {
		s.until = now.Add(wait)
	}
	longest := wait + patience
	if own || n.late.Load() >= maxLate {
		longest = wait
	}
	rec := n.tracer.begin(n.addr, group[0].kind)
	cmds := gather(group, rec)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(group[0].ctx), longest)
	defer cancel()
	late := false
	if own {
		n.exec(ctx, cmds)
	} else {
		late = n.watched(ctx, group, cmds, wait)
	}
	n.took(now)
	rec.end(cmds, late)
	if !late {
		n.report(answered(cmds))
		for _, s := range group {
			s.finish()
		}
		return true
	}
	n.late.Add(-1)
	if answered(cmds) {
		n.report(true)
	}
	for _, s := range group {
		s.deliverLate()
	}
	return false
}

// watched executes commands, and gives up on them when the time is over. It says whether it has.
func (n *node) watched(ctx context.Context, group []*share, cmds []redis.Cmder, wait time.Duration) (late bool) {
	var over atomic.Bool
	timer := time.AfterFunc(wait, func() {
		if over.CompareAndSwap(false, true) {
			n.giveUp(group)
		}
	})
	defer timer.Stop()
	n.exec(ctx, cmds)
	return !over.CompareAndSwap(false, true)
}

// gather lists the commands of a group.
func gather(group []*share, rec *record) []redis.Cmder {
	rec.wait(group)
	size := 0
	for _, s := range group {
		size += len(s.list)
	}
	cmds := make([]redis.Cmder, 0, size)
	for _, s := range group {
		for _, d := range s.list {
			if d.asking {
				rec.command(d.owner)
				cmds = append(cmds, redis.NewCmd(s.ctx, "ASKING"))
			}
			rec.command(d.owner)
			cmds = append(cmds, d.cmd)
		}
	}
	return cmds
}

// giveUp answers the callers of a trip whose deadline has passed, and lets the next trip go.
func (n *node) giveUp(group []*share) {
	n.late.Add(1)
	n.report(false)
	for _, s := range group {
		s.fail(context.DeadlineExceeded)
	}
	if next := n.next(); next != nil {
		go n.send(next)
	}
}

// fail ends a share without replies.
func (s *share) fail(cause error) {
	err := unavailable(cause)
	for _, d := range s.list {
		d.err = err
	}
	close(s.done)
}

// finish hands out the replies, and sends on what provably was not executed.
func (s *share) finish() {
	var list []*declared
	for _, d := range s.list {
		d.val, d.err = d.cmd.Result()
		if d.err == nil {
			continue
		}
		if NotExecuted(d.err) || neverSent(d.err) {
			list = append(list, d)
		}
		if !isReply(d.err) {
			d.err = unavailable(d.err)
		}
	}
	if len(list) > 0 {
		s.again(list)
	}
	close(s.done)
}

// deliverLate hands replies that came after their callers had gone on to whoever wants them.
func (s *share) deliverLate() {
	for _, d := range s.list {
		if d.late == nil {
			continue
		}
		if val, err := d.cmd.Result(); err == nil && d.late(val) {
			s.backend.tracer.lateReply()
		}
	}
}

// answered says whether the server replied to anything at all.
func answered(cmds []redis.Cmder) bool {
	for _, c := range cmds {
		if err := c.Err(); err == nil || isReply(err) {
			return true
		}
	}
	return false
}
