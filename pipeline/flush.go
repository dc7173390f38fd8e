package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// The pauses between attempts while a server does not answer.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// flushTimeout bounds one attempt. Nobody waits for it, so it is generous: a slow server that did execute the flush
// costs a repetition.
const flushTimeout = 5 * time.Second

// flushBytes bounds a flush by what it carries.
const flushBytes = 4 << 20

// lane is what is queued for one slot, in order. It is in one flush at a time, so nothing overtakes in it.
type lane struct {
	slot   uint16
	queue  []*write // not yet answered
	flying int      // how many at the front are under way
	listed bool     // it is in an outbox, or under way
	ask    string   // where the slot is on its way to, by the last reply

	scanned int // how many at the front the keeper has seen to
}

// outbox is the lanes that wait for one server.
type outbox struct {
	to      *node
	lanes   []*lane
	workers int
}

// leg is a lane's part of a flush.
type leg struct {
	lane   *lane
	list   []*write
	asking bool
}

// ready lists a lane for the server that has its slot, and sees that somebody sends it. The lock is held.
func (d *Deferred) ready(l *lane) {
	l.listed = true
	to := d.backend.known(l.slot)
	if l.ask != "" {
		to = d.backend.cluster.at(l.ask)
	}
	o := d.boxes[to]
	if o == nil {
		o = &outbox{to: to}
		d.boxes[to] = o
	}
	o.lanes = append(o.lanes, l)
	if o.workers < d.opt.Workers && !d.stopping {
		o.workers++
		d.running.Go(func() { d.work(o) })
	}
}

// moved lists all lanes anew when slots have moved. The lock is held.
func (d *Deferred) moved() {
	if d.backend.cluster == nil {
		return
	}
	epoch := d.backend.cluster.epoch.Load()
	if epoch == d.epoch {
		return
	}
	d.epoch = epoch
	var all []*lane
	for _, o := range d.boxes {
		all = append(all, o.lanes...)
		o.lanes = nil
	}
	for _, l := range all {
		d.ready(l)
	}
}

// work sends what is in an outbox until it is empty.
func (d *Deferred) work(o *outbox) {
	pause := firstPause
	for {
		legs := d.take(o)
		if legs == nil {
			return
		}
		if d.flush(o, legs) {
			pause = firstPause
			continue
		}
		select {
		case <-d.ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// take marks the front of the lanes of an outbox as under way. When there is nothing, the worker is gone.
func (d *Deferred) take(o *outbox) []leg {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moved()
	if len(o.lanes) == 0 || d.stopping && d.ctx.Err() != nil {
		o.workers--
		if o.workers == 0 && len(o.lanes) == 0 {
			delete(d.boxes, o.to)
		}
		return nil
	}
	var legs []leg
	count, size, taken := 0, 0, 0
	for _, l := range o.lanes {
		if count >= d.opt.MaxFlush || size >= flushBytes {
			break
		}
		taken++
		n := 0
		for n < len(l.queue) && count < d.opt.MaxFlush && size < flushBytes {
			size += l.queue[n].size
			n++
			count++
		}
		l.flying = n
		legs = append(legs, leg{lane: l, list: l.queue[:n:n], asking: l.ask != ""})
	}
	o.lanes = slices.Delete(o.lanes, 0, taken)
	return legs
}

// flush sends the legs as one pipeline. What was not answered stays at the front of its lane.
//
// A write whose reply was lost is sent again under its number, which decides whether it is a repetition. A write that
// provably did not run is too: those behind it in the same flush name its number, and have not run either.
//
// It says whether there was progress: something was answered, or the next attempt is another one. Else the server is away,
// or does not take writes.
func (d *Deferred) flush(o *outbox, legs []leg) (progress bool) {
	if o.to != nil {
		d.send(o.to, legs)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range legs {
		progress = d.settle(o, g) || progress
	}
	return progress
}

// send executes the legs on a server.
func (d *Deferred) send(to *node, legs []leg) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), flushTimeout)
	defer cancel()
	rec := to.tracer.begin(to.addr, KindDeferred)
	var cmds []redis.Cmder
	last := make(map[string]int64) // number by where it is kept
	for _, g := range legs {
		for _, x := range g.list {
			before := int64(0)
			if x.once {
				place := first(x.keys)
				before, last[place] = last[place], x.seq
			}
			if g.asking {
				rec.command(x.owner)
				cmds = append(cmds, redis.NewCmd(ctx, "ASKING"))
			}
			x.cmd = redis.NewCmd(ctx, x.command(d.backend, before)...)
			rec.command(x.owner)
			rec.carry(x.of)
			cmds = append(cmds, x.cmd)
		}
	}
	if len(cmds) > 0 {
		to.exec(ctx, cmds)
		rec.end(cmds, false)
	}
}

// settle takes what was answered off a lane and lists the lane again if anything is left. It says whether there was
// progress. The lock is held.
func (d *Deferred) settle(o *outbox, g leg) (progress bool) {
	l := g.lane
	asked := l.ask != ""
	l.ask = ""
	var left []*write
	for i, x := range g.list {
		err := errNoNodes
		if o.to != nil {
			err = x.cmd.Err()
		}
		switch {
		case err == nil || errors.Is(err, redis.Nil):
			progress = true
		case isReply(err) && !NotExecuted(err), x.script == nil && isNoScript(err): // nobody has that script
			progress = true
			d.refused++
			d.opt.Log.Error("deferred write refused by redis", "owner", x.owner, "error", err)
		case x.replaceable && (!isReply(err) && !neverSent(err) && o.to != nil || ranAny(g.list[i+1:])):
			d.dropped++ // it may have run, or what came after it has: sent again, it would overtake that
		default:
			progress = d.again(l, x, err) || progress
			left = append(left, x)
			continue
		}
		d.gone(x)
	}
	if asked && len(left) == len(g.list) {
		progress = false // back to the slot's owner, after a pause
	}
	rest := l.queue[len(g.list):]
	if len(left) > 0 {
		rest = slices.Concat(left, rest)
	}
	for _, x := range g.list {
		x.cmd = nil
	}
	clear(g.list) // the queue's array is kept, what was answered is not
	l.queue, l.flying, l.listed = rest, 0, false
	l.scanned = max(0, l.scanned-len(g.list)+len(left))
	if len(rest) > 0 {
		d.ready(l)
	} else {
		delete(d.lanes, l.slot)
	}
	return progress
}

// warnPause is how often the log is told at most that Redis does not take writes.
const warnPause = time.Minute

// warn logs why a write waits, unless that passes by itself in the next moment. The lock is held.
func (d *Deferred) warn(x *write, err error) {
	kind, _ := moved(err)
	if kind != "" || hasPrefix(err, "GAP ") || hasPrefix(err, "TRYAGAIN ") || time.Since(d.warned) < warnPause {
		return
	}
	d.warned = time.Now()
	d.opt.Log.Warn("deferred writes wait: redis does not take them", "owner", x.owner, "pending", d.pending, "error", err)
}

// ranAny says whether the server ran any of these.
func ranAny(list []*write) bool {
	for _, x := range list {
		if err := x.cmd.Err(); err == nil || isReply(err) && !NotExecuted(err) {
			return true
		}
	}
	return false
}

// again prepares a write that was not answered for its next attempt. It says whether that should follow at once. The
// lock is held.
func (d *Deferred) again(l *lane, x *write, err error) bool {
	if isNoScript(err) {
		missing := !x.whole
		x.whole = true
		return missing
	}
	d.warn(x, err)
	c := d.backend.cluster
	if c == nil {
		return false
	}
	switch kind, addr := moved(err); kind {
	case "MOVED":
		c.redirect(l.slot, err)
		return true
	case "ASK":
		l.ask = c.known(l.slot).neighbour(addr)
		return true
	}
	if !isReply(err) {
		c.learn() // another server may have the slot by now
	}
	return false
}
