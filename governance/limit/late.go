package limit

import (
	"sync"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// lateness is what becomes of grants that arrive after Get has given up on them: Redis has counted the request, although
// nobody knew. One whose request went on by the failure policy becomes its lease; one whose request was refused, or is
// over, is settled to nothing.
type lateness struct {
	mu       sync.Mutex
	deferred *pipeline.Deferred
	stage    stage
	parts    []*Grant // that arrived, one a group
}

// stage is how far a request is whose admission is late.
type stage int

const (
	undecided stage = iota
	adopting        // it went on without the grant
	over            // it was refused, or has ended
)

// expect sees to it that a late reply to the group's question finds its way. It keeps nothing that changes.
func (a *Admission) expect(g *group) {
	of := group{home: g.home, scopes: g.scopes, candidates: g.candidates}
	g.reply.Late(func(raw any) { a.arrived(of, raw) })
}

// arrived takes a late reply. It is called on a goroutine of the pipeline.
func (a *Admission) arrived(of group, raw any) {
	a.read(&of, raw)
	if of.granted() || of.refused() {
		a.limiter.observe(of.now)
	}
	if a.limiter.found != nil && len(of.expired) > 0 {
		a.limiter.found(of.expired)
	}
	if !of.granted() {
		return
	}
	part := a.grant([]group{of})
	part.tardy = true
	l := &a.late
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.stage {
	case undecided:
		l.parts = append(l.parts, part)
	case adopting:
		a.limiter.holder.hold(part, a.limiter.now())
		l.parts = append(l.parts, part)
	case over:
		part.giveBack(l.deferred)
	}
}

// Adopt makes whatever this admission still brings the lease of a grant by which the request went on: what was reserved
// is held, and settled with the grant. Call it, or Abandon, when Get has returned an error.
func (a *Admission) Adopt(g *Grant) {
	l := &a.late
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage = adopting
	g.awaited = l
	for _, part := range l.parts {
		a.limiter.holder.hold(part, a.limiter.now())
	}
}

// Abandon gives back whatever this admission still brings: the request was refused.
func (a *Admission) Abandon() {
	for _, part := range a.late.end() {
		part.giveBack(a.late.deferred)
	}
}

// end says that nothing is wanted any more, and returns what had arrived. A nil lateness has nothing.
func (l *lateness) end() []*Grant {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	parts := l.parts
	l.stage, l.parts = over, nil
	return parts
}

// giveBack settles to nothing what nobody wants. It is numbered behind the admission, whose reply is here.
func (g *Grant) giveBack(d *pipeline.Deferred) {
	w := d.Writes()
	g.write(w, Ending{Void: true}, nil)
	w.Close()
}
