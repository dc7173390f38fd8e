package usage

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds on what one request may say. Numbers above them saturate, so that products of two of them fit in an int64.
const (
	MaxTokens  = 1 << 40 // of an output cap and of every reported count
	MaxChoices = 1 << 20 // of n: far above OpenAI's 128, because what a local server really produces must be reserved
	maxName    = 1024    // bytes of a model name
)

// Request is what a chat request asks for. It keeps byte offsets into the body it was read from, not the body.
type Request struct {
	Model        string
	Stream       bool
	OutputCap    int64  // tokens; 0: none named. The larger when a client names both caps
	Choices      int64  // n, at least 1
	IncludeUsage bool   // the client asked for the usage chunk
	EndUser      string // "" when no source has one
	InputTokens  int64  // estimate, without any learned factor
	ServiceTier  string // as asked, "" for the default
	Uncacheable  bool   // the provider does or keeps something beside answering
	Cache        CacheControl

	at offsets
}

// span is a range of the body; the zero span is of a member that is absent.
type span struct{ start, end int }

func (s span) present() bool { return s.end > 0 }

// spanIn is where part, cut out of body by slicing, lies in it: both have the same last byte of capacity.
func spanIn(body, part []byte) span {
	start := cap(body) - cap(part)
	return span{start, start + len(part)}
}

// offsets are where Apply may have to cut.
type offsets struct {
	model         span
	streamOptions span // the value, null included
	includeUsage  span // the value inside stream_options
	optionsEmpty  bool // stream_options is {}
	optionsNull   bool
	maxCompletion span // the value of max_completion_tokens, null included
	maxTokens     span // the value of max_tokens when it is a number
	cache         span // the whole member with the comma that goes with it, when it is an object
	lastMember    int  // the end of the body's last member
}

// ParseChat reads the body of POST /v1/chat/completions strictly: one JSON object, valid UTF-8, no name twice in any
// object, none that differs from a governed one by letter case alone, nothing behind it. Servers disagree about which
// of two names counts, so a body that has them is refused, not interpreted. The error is a *MalformedError.
func ParseChat(body []byte, src Sources) (*Request, error) {
	if crowded(body) {
		return nil, malformed("", "an object of the body has more than %d members", maxMembers)
	}
	dec := newDecoder(body)
	defer dec.release(len(body))
	p := chatParser{
		body: body,
		req:  &Request{Choices: 1},
		user: endUser{sources: &src, rank: len(src.EndUser)},
	}
	if err := p.object(&dec.Decoder); err != nil {
		return nil, err
	}
	return p.finish()
}

// decoder is a JSON decoder that reads a body in place.
type decoder struct {
	jsontext.Decoder
	source bytes.Buffer
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

func newDecoder(body []byte) *decoder {
	d := decoders.Get().(*decoder)
	d.source = *bytes.NewBuffer(body)
	d.Reset(&d.source)
	return d
}

// release gives the decoder back without the body. After a big body its tables of names may be big as well; they are
// left to the collector.
func (d *decoder) release(size int) {
	const kept = 1 << 20
	if size > kept {
		return
	}
	d.source = bytes.Buffer{}
	d.Reset(&d.source)
	decoders.Put(d)
}

// chatParser walks the top level of one body.
type chatParser struct {
	body []byte
	req  *Request
	user endUser

	maxTokens, maxCompletionTokens int64
	weight                         int64 // of the input so far, hundredths of a token
	cacheFirst                     bool  // the member cache came first and still lacks the comma behind it
}

// object reads the whole body.
func (p *chatParser) object(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind != '{' && kind != 0 {
		return malformed("", "the body must be a json object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return invalidJSON(err)
	}
	for dec.PeekKind() != '}' {
		quoted, err := dec.ReadValue()
		if err != nil {
			return invalidJSON(err)
		}
		nameEnd := int(dec.InputOffset())
		nameStart := nameEnd - len(quoted)
		name := unescape(p.body[nameStart:nameEnd])
		if p.cacheFirst {
			p.req.at.cache.end, p.cacheFirst = nameStart, false
		}
		value, err := dec.ReadValue()
		if err != nil {
			return invalidJSON(err)
		}
		end := int(dec.InputOffset())
		at := span{end - len(value), end}
		if err := p.member(name, nameStart, at); err != nil {
			return err
		}
		p.req.at.lastMember = end
	}
	if _, err := dec.ReadToken(); err != nil {
		return invalidJSON(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return malformed("", "the body has something behind its json object, at byte %d", dec.InputOffset())
	}
	return nil
}

// member reads one top-level member.
func (p *chatParser) member(name []byte, nameStart int, at span) error {
	value := p.body[at.start:at.end]
	if err := p.field(name, value, nameStart, at); err != nil {
		return err
	}
	if isVariant(name) {
		return malformed("", "the body has a name at byte %d that differs from a known one by letter case alone", nameStart)
	}
	return p.user.offer(name, value)
}

// field reads one of the governed members; any other is none of our business.
func (p *chatParser) field(name, value []byte, nameStart int, at span) (err error) {
	r := p.req
	switch string(name) {
	case "model":
		r.at.model = at
		r.Model, err = modelName(value)
	case "messages":
		if kindOf(value) != '[' {
			return malformed("messages", "messages must be an array")
		}
		p.weight += messagesWeight(value)
	case "tools", "functions":
		p.weight += valueWeight(value)
		r.Uncacheable = r.Uncacheable || hasProviderTool(value)
	case "response_format":
		p.weight += valueWeight(value)
	case "stream":
		if !isNull(value) {
			err = setBool("stream", value, &r.Stream)
		}
	case "stream_options":
		err = p.streamOptions(value, at)
	case "max_completion_tokens":
		r.at.maxCompletion = at
		p.maxCompletionTokens, err = count("max_completion_tokens", value, MaxTokens)
	case "max_tokens":
		if !isNull(value) {
			r.at.maxTokens = at
		}
		p.maxTokens, err = count("max_tokens", value, MaxTokens)
	case "n":
		r.Choices, err = count("n", value, MaxChoices)
		r.Choices = max(r.Choices, 1)
	case "service_tier":
		r.ServiceTier, err = serviceTier(value)
	case "cache":
		err = p.cacheControl(value, nameStart, at)
	case "store", "background", "web_search_options", "search_parameters", "plugins", "previous_response_id", "conversation":
		r.Uncacheable = r.Uncacheable || !isNull(value) && value[0] != 'f'
	}
	return err
}

// finish checks what only the whole body can tell.
func (p *chatParser) finish() (*Request, error) {
	r := p.req
	if !r.at.model.present() {
		return nil, malformed("model", "model is required")
	}
	// Servers differ in which of the two caps they heed.
	r.OutputCap = max(p.maxTokens, p.maxCompletionTokens)
	r.InputTokens = tokens(p.weight)
	var err error
	if r.EndUser, err = p.user.result(); err != nil {
		return nil, err
	}
	return r, nil
}

// streamOptions reads stream_options and remembers where include_usage stands.
func (p *chatParser) streamOptions(value []byte, at span) error {
	o := &p.req.at
	o.streamOptions = at
	if isNull(value) {
		o.optionsNull = true
		return nil
	}
	if kindOf(value) != '{' {
		return malformed("stream_options", "stream_options must be an object")
	}
	o.optionsEmpty = true
	for name, v := range members(value) {
		o.optionsEmpty = false
		if string(name) != "include_usage" {
			if bytes.EqualFold(name, []byte("include_usage")) {
				return malformed("stream_options.include_usage",
					"stream_options has a name that differs from include_usage by letter case alone")
			}
			continue
		}
		o.includeUsage = spanIn(p.body, v)
		if !isNull(v) {
			if err := setBool("stream_options.include_usage", v, &p.req.IncludeUsage); err != nil {
				return err
			}
		}
	}
	return nil
}

// cacheControl reads LiteLLM's cache object. Anything but an object is not LiteLLM's, and passes.
func (p *chatParser) cacheControl(value []byte, nameStart int, at span) (err error) {
	if kindOf(value) != '{' {
		return nil
	}
	// Without the member its comma must go too: the one before it, or behind it when it is the first.
	p.req.at.cache = span{p.req.at.lastMember, at.end}
	if p.req.at.lastMember == 0 {
		p.req.at.cache.start, p.cacheFirst = nameStart, true
	}
	p.req.Cache, err = parseCacheControl(value)
	return err
}
