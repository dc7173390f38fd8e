package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// record is a trip under way. A nil record, which is what a nil Tracer makes, notes nothing.
type record struct {
	tracer *Tracer
	trip   Trip
	owners []string  // run parallel to the commands
	shares []*share  // the requests that wait; nil when nobody does
	writes []*Writes // of a deferred trip: whose writes it carries
}

// begin notes that a trip is about to be sent.
func (t *Tracer) begin(server string, kind Kind) *record {
	if t == nil {
		return nil
	}
	return &record{tracer: t, trip: Trip{At: time.Now(), Kind: kind, Server: server}}
}

// wait notes the requests that wait for the trip.
func (r *record) wait(group []*share) {
	if r == nil {
		return
	}
	r.shares = group
	r.trip.Batches = len(group)
	r.trip.Callers = make([]string, len(group))
	size := 0
	for i, s := range group {
		r.trip.Callers[i] = s.caller
		r.trip.Queued = max(r.trip.Queued, r.trip.At.Sub(s.since).Nanoseconds())
		size += len(s.list)
	}
	r.owners = make([]string, 0, size)
}

// carry notes a deferred write; from is nil for one whose request is not known any more.
func (r *record) carry(from *Writes) {
	if r == nil {
		return
	}
	r.trip.Batches++
	n := len(r.writes)
	if from == nil || from.caller == "" || n == maxCallersKept || n > 0 && r.writes[n-1] == from {
		return
	}
	r.writes = append(r.writes, from)
	r.trip.Callers = append(r.trip.Callers, from.caller)
}

// command notes whose the next command is.
func (r *record) command(owner string) {
	if r != nil {
		r.owners = append(r.owners, owner)
	}
}

// end judges the trip by its commands. late says that its callers had gone on.
func (r *record) end(cmds []redis.Cmder, late bool) {
	if r == nil {
		return
	}
	t := &r.trip
	t.Nanos = time.Since(t.At).Nanoseconds()
	t.Late, t.Size = late, len(cmds)
	if r.tracer.keep > 0 {
		t.Commands = make([]Command, min(len(cmds), maxCommandsKept))
	}
	for i, c := range cmds {
		err := failed(c)
		if err != nil && t.Error == "" && !isReply(err) {
			t.Error = err.Error()
		}
		p := t.portion(r.owners[i])
		p.add(c, err)
		if i < len(t.Commands) {
			t.Commands[i] = describe(r.owners[i], c, err)
		}
	}
	for i := range t.Owners {
		t.Sent += t.Owners[i].Sent
		t.Received += t.Owners[i].Received
	}
	r.tracer.remember(t)
	if r.tracer.spans != nil {
		r.export(cmds)
	}
}

// portion is the owner's part of the trip. There are few owners.
func (t *Trip) portion(owner string) *Portion {
	for i := range t.Owners {
		if t.Owners[i].Owner == owner {
			return &t.Owners[i]
		}
	}
	t.Owners = append(t.Owners, Portion{Owner: owner})
	return &t.Owners[len(t.Owners)-1]
}

func (p *Portion) add(c redis.Cmder, err error) {
	p.Commands++
	if err != nil {
		p.Errors++
	}
	if err == nil || !neverSent(err) {
		p.Sent += sentSize(c.Args())
	}
	p.Received += receivedSize(c)
}

// failed is a command's error. A key that is not there is none.
func failed(c redis.Cmder) error {
	if err := c.Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

func describe(owner string, c redis.Cmder, err error) Command {
	name := c.Name()
	d := Command{Owner: owner, Name: name, Key: firstKey(name, c.Args())}
	if err != nil {
		d.Error = errorText(err)
	}
	return d
}

// firstKey is the first key of a command, whose name is in lower case; "" when it has none.
func firstKey(name string, args []any) string {
	at := 1
	if name == "evalsha" || name == "eval" {
		if len(args) < 3 || args[2] == 0 {
			return "" // what follows are arguments
		}
		at = 3
	}
	if len(args) <= at {
		return ""
	}
	if s, ok := args[at].(string); ok {
		return s
	}
	return fmt.Sprint(args[at])
}

// errorText is an error without the arguments that some replies repeat ("ERR unknown command 'X', with args beginning
// with: ...").
func errorText(err error) string {
	text, _, _ := strings.Cut(err.Error(), ", with args")
	return text
}
