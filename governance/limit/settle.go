package limit

import (
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/usage"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// Ending says what a request came to.
type Ending struct {
	Nano  int64 // what it cost
	Usage usage.Usage
	// Void takes everything back: the request never was.
	Void bool
	// Cached takes back what the deployment counted: the answer came from the cache.
	Cached bool
	// Record is the spend record to append; nil for none.
	Record []byte
}

// Settle declares the settlement on the request's deferred batch. The caller sees to it that it is called exactly once
// for each grant.
func (g *Grant) Settle(w *pipeline.Writes, e Ending) {
	g.limiter.holder.release(g)
	for _, s := range g.scopes {
		s.share.end()
	}
	parts := g.awaited.end()
	for _, part := range parts {
		g.limiter.holder.release(part)
	}
	g.write(w, e, parts)
}

// write declares what an ending changes in Redis: on one server one script, on a cluster one for each portion and one
// for the record, for each lives in a slot of its own. Each is numbered, and so repeated, by itself. What came late of
// the request's own admission stands in for the portions that know of no lease.
func (g *Grant) write(w *pipeline.Writes, e Ending, late []*Grant) {
	l := g.limiter
	stream := ""
	if e.Record != nil {
		stream = l.prefix + ":spend:{" + shard(g.ID) + "}"
	}
	if !l.clustered {
		of := g
		if len(late) > 0 {
			of = late[0]
		}
		of.once(w, &of.portions[0], e, stream)
		return
	}
	for _, part := range late {
		part.once(w, &part.portions[0], e, "")
	}
	for i := range g.portions {
		if !slices.ContainsFunc(late, func(part *Grant) bool { return part.portions[0].home == g.portions[i].home }) {
			g.once(w, &g.portions[i], e, "")
		}
	}
	if stream != "" {
		g.once(w, &portion{home: shard(g.ID), at: g.At.UnixMilli(), bucket: -1}, e, stream)
	}
}

// once declares one script of a settlement: a portion, and the record unless stream is empty.
func (g *Grant) once(w *pipeline.Writes, p *portion, e Ending, stream string) {
	keys, args := g.settlement(w.Writer(), p, e, stream)
	if g.limiter.clustered && len(keys) == 1 {
		return // nothing of the portion is in Redis
	}
	w.Once("limit", settleScript, keys, args...)
}

// settlement makes the keys and the arguments of one script, but for the writer and its number.
func (g *Grant) settlement(writer string, p *portion, e Ending, stream string) ([]string, []any) {
	l := g.limiter
	n := p.to - p.from
	keys := make([]string, 1, 2+3*n)
	keys[0] = writerKey(l.prefix, p.home, writer)
	record := ""
	if stream != "" {
		keys = append(keys, stream)
		record = string(e.Record)
	}
	args := make([]any, 0, 5+8*n)
	args = append(args, p.at, p.bucket, n, record, l.streamMax)
	for i := p.from; i < p.to; i++ {
		keys = append(keys, g.scopes[i].keys...)
		args = g.appendScope(args, p, i, e)
	}
	return keys, args
}

func (g *Grant) appendScope(args []any, p *portion, i int, e Ending) []any {
	s := g.scopes[i]
	// A deployment that was chosen too late did not serve: without a choice the first candidate does.
	unserved := e.Cached || g.tardy && g.Chosen > 0
	takeBack := e.Void || unserved && i == g.deploy
	requests, actual := int64(0), counted(s.Counts, e.Usage)
	if takeBack {
		requests, actual = -1, 0
	}
	args = append(args, s.has, g.members[i], requests, actual-g.demand.tokens(s.Counts, p.output), len(s.Budgets))
	for j, b := range s.Budgets {
		args = append(args, b.field, g.periods[i][j], charge(b.Unit, e, takeBack))
	}
	return args
}

// charge is what an ending adds to a budget's spent amount.
func charge(unit config.Unit, e Ending, takeBack bool) int64 {
	switch {
	case takeBack:
		return 0
	case unit == config.USD:
		return e.Nano
	case unit == config.Tokens:
		return e.Usage.Total()
	default:
		return 1
	}
}

// counted is how many tokens a tpm limit counts of a usage.
func counted(how config.TPMCounts, u usage.Usage) int64 {
	switch how {
	case config.CountUncached:
		return u.Total() - u.CacheRead
	case config.CountInput:
		return u.Input
	case config.CountOutput:
		return u.Output
	default:
		return u.Total()
	}
}

// streams is the number of spend streams: records spread over the slots of a cluster.
const streams = 16

func shard(id string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return strconv.Itoa(int(h.Sum32() % streams))
}
