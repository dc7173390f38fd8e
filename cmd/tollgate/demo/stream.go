package demo

import (
	"bytes"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

// stream answers with server-sent events: the role, a chunk a token of each choice in turn, the reason of the end, the
// usage when asked for, [DONE]. It stops when the client goes.
func (p *provider) stream(w http.ResponseWriter, r *http.Request, q *request, base completion) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	base.Object = "chat.completion.chunk"
	out := &events{w: w, flush: http.NewResponseController(w), base: base, usage: q.includeUsage()}
	tokens, finish := q.answer()
	empty := ""
	out.each(q.choices(), choice{Delta: &text{Role: "assistant", Content: &empty}})
	for _, token := range tokens {
		if !pause(r, p.ChunkDelay) {
			return
		}
		out.each(q.choices(), choice{Delta: &text{Content: &token}})
	}
	out.each(q.choices(), choice{Delta: &text{}, FinishReason: &finish})
	if out.usage {
		out.send([]choice{}, newUsage(q, len(tokens)))
	}
	out.done()
}

// pause waits, and returns false when the client has gone.
func pause(r *http.Request, delay time.Duration) bool {
	if delay <= 0 {
		return r.Context().Err() == nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// events writes the chunks of one answer. The first error sticks.
type events struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	base  completion
	// usage says that the caller asked for usage.
	usage bool
	err   error
}

// each sends a chunk for every choice.
func (e *events) each(choices int, c choice) {
	for i := range choices {
		c.Index = i
		e.send([]choice{c}, nil)
	}
}

func (e *events) send(choices []choice, used *usage) {
	if e.err != nil {
		return
	}
	e.base.Choices = choices
	if e.usage {
		e.base.Usage = used
	}
	var event bytes.Buffer
	event.WriteString("data: ")
	if e.err = json.MarshalWrite(&event, e.base); e.err == nil {
		e.write(event.Bytes())
	}
}

func (e *events) done() {
	if e.err == nil {
		e.write([]byte("data: [DONE]"))
	}
}

// write sends one event and flushes it.
func (e *events) write(event []byte) {
	if _, e.err = e.w.Write(append(event, "\n\n"...)); e.err == nil {
		e.err = e.flush.Flush()
	}
}
