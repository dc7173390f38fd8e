package usage

import (
	"bytes"
	"strings"
)

// ReaderOptions says what a Reader does beside reading.
type ReaderOptions struct {
	// StripUsage removes the usage-only chunk from a stream, for a client that did not ask for it.
	StripUsage bool
	// Collect keeps a copy of the answer as the upstream sent it, up to that many bytes; 0: none.
	Collect int64
}

// Result is what an answer has told so far.
type Result struct {
	Usage       Usage
	HasUsage    bool
	Complete    bool   // not failed, and the answer reached its own end: [DONE], every choice finished, or JSON whole
	Failed      bool   // it holds an error object
	FinishSeen  bool   // some choice has a finish_reason
	OutputBytes int64  // decoded bytes of text, reasoning and tool arguments
	Model       string // as the upstream names it; "" when it does not
	ServiceTier string // which the upstream says it used; "" when it does not
}

// Reader reads one answer to a chat request while it passes, JSON or a stream of server-sent events, in memory that
// does not grow with the answer. It works on bytes: nothing is decoded and written again. The answer must not be
// compressed; the gateway drops accept-encoding on the way up. A Reader is for one goroutine.
type Reader struct {
	opt    ReaderOptions
	stream bool // the content type is a stream's
	form   form
	lines  lines
	scan   scanner
	answer answer
	hold   holder

	begun  bool   // the event has data
	object bool   // which is an object
	word   []byte // the beginning of data that is none
	done   bool   // [DONE] was seen

	collected []byte
	over      bool // the answer did not fit
	cut       bool // the stream ended inside an event
	closed    bool
}

// answer is what a dialect makes of an answer's documents, which the scanner shows it by the dialect's shape.
type answer interface {
	sink
	begin()          // a document begins
	more() bool      // it is more than a usage chunk, whatever follows
	usageOnly() bool // read to its end, it is nothing but the usage chunk
	result() Result  // Complete says that the documents themselves brought the answer to its end
}

// form is how the answer is written. Its first byte decides: upstreams send JSON errors as text/event-stream, and
// streams under other types.
type form uint8

const (
	undecided form = iota
	single
	events
)

// doneWord is the datum that ends a stream.
const doneWord = "[DONE]"

// NewReader begins a chat answer with the given content-type header.
func NewReader(contentType string, opt ReaderOptions) *Reader {
	mediaType, _, _ := strings.Cut(contentType, ";")
	r := &Reader{opt: opt, stream: strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream")}
	r.answer = &chatAnswer{}
	r.scan = scanner{shape: chatShape, sink: r.answer}
	r.lines.handler = r
	return r
}

// Write reads the next piece and returns what of it passes to the client: the piece itself when nothing is changed. No
// byte waits for another, but for the beginning of an event that may still turn out to be the usage chunk while
// StripUsage is on. What is returned stays valid as long as the piece does.
func (r *Reader) Write(piece []byte) []byte {
	if len(piece) == 0 || r.closed {
		return piece
	}
	r.collect(piece)
	from := 0
	if r.form == undecided {
		from = r.decide(piece)
	}
	switch r.form {
	case single:
		r.scan.feed(piece[from:])
	case events:
		r.hold.begin(piece)
		r.lines.feed(piece, from)
		return r.hold.finish()
	}
	return piece
}

// Close ends the answer and returns what was still withheld. It may be called again, and Result at any time.
func (r *Reader) Close() []byte {
	if r.closed {
		return nil
	}
	r.closed = true
	r.hold.begin(nil)
	if r.form == events {
		r.cut = r.begun && r.object && !r.scan.whole()
		r.lines.close()
	}
	return r.hold.finish()
}

// Result is what was read so far.
func (r *Reader) Result() Result {
	result := r.answer.result()
	switch r.form {
	case single:
		result.Complete = r.scan.whole()
	case events:
		result.Complete = r.done || result.Complete && !r.cut && !r.begun
	}
	result.Complete = result.Complete && !result.Failed
	return result
}

// Collected is the answer as the upstream sent it, the usage chunk included; false when it was longer than Collect.
func (r *Reader) Collected() ([]byte, bool) {
	return r.collected, r.opt.Collect > 0 && !r.over
}

func (r *Reader) collect(piece []byte) {
	if r.opt.Collect <= 0 || r.over {
		return
	}
	if int64(len(r.collected)+len(piece)) > r.opt.Collect {
		r.collected, r.over = nil, true
		return
	}
	r.collected = append(r.collected, piece...)
}

// decide finds the form by the first byte that is neither white space (DeepSeek keeps a connection alive with blank
// lines) nor of a byte order mark, and returns where that byte is.
func (r *Reader) decide(piece []byte) int {
	for i, c := range piece {
		switch c {
		case ' ', '\t', '\n', '\r', 0xEF, 0xBB, 0xBF:
			continue
		case '{':
			r.form = single
		case 'd', 'e', 'i', 'r', ':': // the fields of an event, and a comment
			r.form = events
		default:
			r.form = single
			if r.stream {
				r.form = events
			}
		}
		return i
	}
	return len(piece)
}

// fieldAt implements eventHandler.
func (r *Reader) fieldAt(offset int) {
	if r.opt.StripUsage {
		r.hold.hold(offset)
	}
}

// datum implements eventHandler.
func (r *Reader) datum(part []byte) {
	if !r.begun {
		if part = bytes.TrimLeft(part, " \t\n"); len(part) == 0 {
			return
		}
		r.begin(part[0] == '{')
	}
	if !r.object {
		r.word = append(r.word, part[:min(len(part), len(doneWord)+1-len(r.word))]...)
		return
	}
	r.scan.feed(part)
	if r.scan.broken || r.answer.more() {
		r.hold.release()
	}
}

// begin starts an event's data.
func (r *Reader) begin(object bool) {
	r.begun, r.object, r.word = true, object, r.word[:0]
	if !object {
		r.hold.release()
		return
	}
	r.scan.reset()
	r.answer.begin()
}

// eventEnd implements eventHandler.
func (r *Reader) eventEnd(offset int) {
	usageOnly := false
	if r.begun {
		usageOnly = r.object && r.scan.whole() && r.answer.usageOnly()
		r.done = r.done || !r.object && string(bytes.TrimRight(r.word, " \t")) == doneWord
	}
	r.begun, r.object = false, false
	if r.hold.on && usageOnly {
		r.hold.drop(offset)
		return
	}
	r.hold.release()
}

// lateLF implements eventHandler.
func (r *Reader) lateLF(offset int) { r.hold.lateLF(offset) }
