package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// The pauses between attempts while the server does not answer.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// flushTimeout bounds one attempt. Nobody waits for it, so it is generous: a slow server that did execute the flush
// costs a repetition.
const flushTimeout = 5 * time.Second

// run sends what is queued until ctx ends.
func (d *Deferred) run(ctx context.Context) {
	defer close(d.stopped)
	tick := time.NewTicker(d.opt.Deadline / 4)
	defer tick.Stop()
	pause := firstPause
	for {
		list := d.take()
		if len(list) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-d.wake:
			case now := <-tick.C:
				d.expire(now)
			}
			continue
		}
		left := d.flush(ctx, list)
		if left == 0 {
			pause = firstPause
			continue
		}
		if left < len(list) {
			pause = firstPause // it does answer
		}
		select { // what was not answered is still at the front of the queue
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// take marks the front of the queue as under way. A write whose outcome is unknown goes alone: see flush.
func (d *Deferred) take() []*write {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flying = min(len(d.queue), d.opt.MaxFlush)
	if d.flying > 0 && d.queue[0].unknown {
		d.flying = 1
	}
	return d.queue[:d.flying:d.flying]
}

// flush sends a list as one pipeline and says how much of it was not answered. That stays at the front of the queue.
//
// Numbers decide what is a repetition, so no write may run before one with a smaller number that is still to run. Yet
// some commands of a pipeline can be refused and later ones run: another process brings a lost script back between the
// two. So a write that provably never ran gets a new number, and so does all that is queued behind it. A write whose
// reply was lost may not get one: it may have run under its old number. It is repeated under that, alone and with the
// whole script, before anything else is sent.
func (d *Deferred) flush(ctx context.Context, list []*write) int {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	d.send(ctx, list, list[0].unknown)
	unknown, refused := d.judge(ctx, list)
	if len(refused) > 0 && len(unknown) == 0 {
		d.requeue(nil, refused)
		d.send(ctx, refused, true)
		unknown, refused = d.judge(ctx, refused)
	}
	d.requeue(unknown, refused)
	return len(unknown) + len(refused)
}

// judge sorts out what was not answered: writes whose outcome is unknown, and writes that did not run and must.
func (d *Deferred) judge(ctx context.Context, list []*write) (unknown, refused []*write) {
	for _, x := range list {
		err := x.cmd.Err()
		switch {
		case err == nil || errors.Is(err, redis.Nil):
		case !isReply(err), x.unknown && NotExecuted(err):
			x.unknown = true
			unknown = append(unknown, x)
		case !NotExecuted(err):
			d.opt.Log.Error("deferred write refused by redis", "owner", x.owner, "error", err)
		case x.replaceable:
			// Its place in the order is gone: what came after it may have run.
			if isNoScript(err) {
				_ = d.backend.Load(ctx, x.script) // the next one will find it
			}
		default:
			refused = append(refused, x)
		}
	}
	return unknown, refused
}

// requeue replaces what is under way by what of it must be sent again.
func (d *Deferred) requeue(unknown, refused []*write) {
	d.mu.Lock()
	defer d.mu.Unlock()
	behind := d.queue[d.flying:]
	if len(refused) > 0 {
		for _, x := range slices.Concat(refused, behind) {
			if x.seq != 0 {
				d.seq++
				x.seq = d.seq
			}
		}
	}
	d.queue = slices.Concat(unknown, refused, behind)
	d.flying = len(unknown) + len(refused)
}

func (d *Deferred) send(ctx context.Context, list []*write, whole bool) {
	owners := make([]string, len(list))
	cmds := make([]redis.Cmder, len(list))
	for i, x := range list {
		x.cmd = redis.NewCmd(ctx, x.command(d, whole)...)
		owners[i], cmds[i] = x.owner, x.cmd
	}
	d.backend.exec(ctx, KindDeferred, d.writer, len(list), owners, cmds)
}

// command builds the command as it is sent now.
func (x *write) command(d *Deferred, whole bool) []any {
	if x.script == nil {
		return x.plain
	}
	args := x.args
	if x.seq != 0 {
		args = append([]any{d.writer, x.seq}, args...)
	}
	return x.script.call(d.backend.dialect, whole || d.backend.eval, x.keys, args)
}
