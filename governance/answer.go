package governance

import (
	"strconv"
	"strings"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/cache"
	"github.com/tollgate-proxy/tollgate/governance/identity"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// answer is what is seen of the upstream's answer.
type answer struct {
	status    int
	local     bool // Envoy's own reply: no upstream answered
	stream    bool
	reader    *usage.Reader
	collector *cache.Collector // nil when the answer is not kept
	strip     bool             // hide the usage chunk that the client did not ask for
	over      bool             // the last byte was seen
	blind     bool             // Envoy does not show the body
	at        time.Time        // of the headers
}

// expect notes what the request that goes up makes of its answer.
func (a *answer) expect(c *Call, e usage.Edits) {
	a.strip = e.IncludeUsage && !c.request.IncludeUsage
	a.stream = c.request.Stream
}

// Answer is how the headers of the upstream's answer go on to the client.
type Answer struct {
	Set    [][2]string
	Remove []string
	// Edits says that the body may become shorter than it came, so that its length must not be promised.
	Edits bool
}

// Answered takes the headers of the answer. local says that Envoy gave it itself.
func (c *Call) Answered(status int, h identity.Headers, local bool) Answer {
	a := &c.answer
	a.status, a.local, a.at = status, local, c.gate.now()
	contentType := first(h, "content-type")
	sse := isSSE(contentType)
	a.reader = usage.NewReader(contentType, usage.ReaderOptions{StripUsage: a.strip && sse})
	if c.keepable(h, sse) {
		a.collector = cache.NewCollector(c.endpoint.Name, contentType, c.policy.cfg.Cache.MaxEntry)
	}
	out := Answer{Edits: a.strip && sse}
	if out.Edits {
		out.Remove = append(out.Remove, "content-length")
	}
	extra := [][2]string(nil)
	if c.caching {
		extra = append(extra, [2]string{"x-tollgate-cache", "miss"})
	}
	if status == 429 && !local {
		extra = append(extra, [2]string{"x-tollgate-origin", "upstream"})
	}
	out.Set = c.governedHeaders(extra)
	return out
}

// keepable says whether the answer may be kept as far as its headers tell.
func (c *Call) keepable(h identity.Headers, sse bool) bool {
	a := &c.answer
	return c.caching && !c.controls.NoStore && a.status == 200 && !a.local && sse == a.stream &&
		first(h, "content-encoding") == ""
}

// Blind tells the call, before it is admitted, that it will see nothing of the answer's body: it is charged what was
// reserved, and no usage is asked for, because nobody could take it out again for a client that did not ask.
func (c *Call) Blind() { c.answer.blind = true }

func isSSE(contentType string) bool {
	mime, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(mime), "text/event-stream")
}

// Piece takes a piece of the answer's body and returns what goes on to the client: the same slice when nothing of it
// changes. last says that it is the end of the body.
func (c *Call) Piece(p []byte, last bool) []byte {
	a := &c.answer
	if a.reader == nil || a.over {
		return p
	}
	if a.collector != nil {
		a.collector.Write(p)
	}
	out := a.reader.Write(p)
	if last {
		if tail := a.reader.Close(); len(tail) > 0 {
			out = append(out[:len(out):len(out)], tail...)
		}
		a.over = true
	}
	return out
}

// Ended tells that the answer's body is over although no piece said so: trailers followed it, or it had none. It
// returns what was held back.
func (c *Call) Ended() []byte {
	a := &c.answer
	if a.reader == nil || a.over {
		return nil
	}
	a.over = true
	return a.reader.Close()
}

// governedHeaders are the headers of every answer that was admitted.
func (c *Call) governedHeaders(list [][2]string) [][2]string {
	list = append(list,
		[2]string{"x-tollgate-request-id", c.id},
		[2]string{"cache-control", "private, no-store"},
	)
	list = appendLimits(list, c.grant, c.gate.limiter.Now())
	if c.would != "" {
		list = append(list, [2]string{"x-tollgate-would-refuse", c.would})
	}
	if c.policy.cfg.Debug.TripsHeader {
		list = append(list, [2]string{"x-tollgate-trips", strconv.Itoa(c.trips)})
	}
	return list
}
