package usage

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Edits is what the upstream must see differently. The zero value changes nothing.
type Edits struct {
	Model        string // the upstream's name; "": as the client wrote it
	IncludeUsage bool   // make a stream report its usage
	OutputCap    int64  // tokens; sent when the client named no cap; 0: none
}

// Apply returns the body with the edits made, each by replacing or adding only the bytes it is about: every other
// byte stays as it came. The body must be the one the request was read from; it is returned itself when nothing
// changes, and is never written to.
//
// A cap goes up as max_completion_tokens, or in the place of a cap the client wrote as null, zero or less. The member
// cache, when it holds LiteLLM's cache controls, is meant for the gateway and taken out: OpenAI and Azure refuse
// arguments they do not know.
func (r *Request) Apply(body []byte, e Edits) []byte {
	var cuts splices
	at := &r.at
	if e.Model != "" && e.Model != r.Model {
		cuts.add(splice{span: at.model, quote: e.Model})
	}
	if at.cache.present() {
		cuts.add(splice{span: at.cache})
	}
	if e.IncludeUsage && r.Stream && !r.IncludeUsage {
		cuts.add(at.usageSplice())
	}
	if e.OutputCap > 0 && r.OutputCap == 0 {
		if at.maxTokens.present() {
			cuts.add(splice{span: at.maxTokens, number: e.OutputCap})
		}
		if at.maxCompletion.present() {
			cuts.add(splice{span: at.maxCompletion, number: e.OutputCap})
		}
		if !at.maxTokens.present() && !at.maxCompletion.present() {
			cuts.add(splice{span: at.end(), text: `,"max_completion_tokens":`, number: e.OutputCap})
		}
	}
	if cuts.n == 0 {
		return body
	}
	return cuts.apply(body)
}

// end is the place behind the last member.
func (o *offsets) end() span { return span{o.lastMember, o.lastMember} }

// usageSplice sets stream_options.include_usage and keeps the other options.
func (o *offsets) usageSplice() splice {
	inside := span{o.streamOptions.start + 1, o.streamOptions.start + 1}
	switch {
	case o.includeUsage.present():
		return splice{span: o.includeUsage, text: "true"}
	case !o.streamOptions.present():
		return splice{span: o.end(), text: `,"stream_options":{"include_usage":true}`}
	case o.optionsNull:
		return splice{span: o.streamOptions, text: `{"include_usage":true}`}
	case o.optionsEmpty:
		return splice{span: inside, text: `"include_usage":true`}
	default:
		return splice{span: inside, text: `"include_usage":true,`}
	}
}

// splice replaces a range by a text, followed by a quoted string or a number when there is one.
type splice struct {
	span
	text   string
	quote  string
	number int64
}

// splices are the cuts of one edit, in the order of the body; two at one place keep the order they were added in.
type splices struct {
	list [5]splice // model, cache, usage and two caps
	n    int
}

func (s *splices) add(cut splice) {
	i := s.n
	for ; i > 0 && s.list[i-1].start > cut.start; i-- {
		s.list[i] = s.list[i-1]
	}
	s.list[i] = cut
	s.n++
}

// apply allocates once, unless a quoted string needs more than a few escapes.
func (s *splices) apply(body []byte) []byte {
	const number, slack = 20, 16 // bytes of the longest int64; quotes and some escapes
	size := len(body)
	for _, cut := range s.list[:s.n] {
		size += len(cut.text) + len(cut.quote) + number + slack
	}
	out := make([]byte, 0, size)
	done := 0
	for _, cut := range s.list[:s.n] {
		out = append(out, body[done:cut.start]...)
		out = append(out, cut.text...)
		if cut.quote != "" {
			// The error is about invalid UTF-8 only, which it has then replaced.
			out, _ = jsontext.AppendQuote(out, cut.quote)
		}
		if cut.number > 0 {
			out = strconv.AppendInt(out, cut.number, 10)
		}
		done = cut.end
	}
	return append(out, body[done:]...)
}
