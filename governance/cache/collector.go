package cache

import (
	"errors"
	"strings"
)

// The content types of entries.
const (
	contentJSON = "application/json"
	contentSSE  = "text/event-stream"
)

// Collector gathers an answer as it passes. It never holds more than about its bound: an answer that is larger, or
// that cannot be kept, is dropped at once and costs nothing from then on. It belongs to one goroutine.
type Collector struct {
	max       int
	endpoint  string
	streaming bool
	events    events
	assembler *assembler // of a chat stream
	checker   *checker   // of another stream
	body      []byte     // as it came; unused for chat streams
	err       error      // why nothing is kept
}

var errTooLarge = errors.New("larger than max_entry")

// NewCollector begins an answer of a 2xx status. endpoint is as configuration names it ("chat"), contentType the
// upstream's header, maxEntry the bound in bytes. Bytes must come after content decoding.
func NewCollector(endpoint, contentType string, maxEntry int64) *Collector {
	c := &Collector{endpoint: endpoint, max: int(min(maxEntry, 1<<30))}
	switch mediaType(contentType) {
	case contentJSON:
	case contentSSE:
		c.streaming = true
		c.events.max = c.max
		switch endpoint {
		case "chat":
			c.assembler = newAssembler()
			c.events.emit = c.assembler.event
		case "messages", "responses":
			c.checker = &checker{endpoint: endpoint}
			c.events.emit = c.checker.event
		default:
			// A text completion's stream may hold a usage chunk that the next caller did not ask for.
			c.err = notStorable("a stream of " + endpoint)
		}
	default:
		c.err = notStorable("content type " + contentType)
	}
	return c
}

// Write takes the next bytes of the answer. It never fails: whether the answer is kept shows at Finish.
func (c *Collector) Write(p []byte) {
	if c.err != nil {
		return
	}
	if c.assembler == nil {
		if len(c.body)+len(p) > c.max {
			c.drop(errTooLarge)
			return
		}
		c.body = append(c.body, p...)
	}
	if c.streaming {
		if err := c.events.write(p); err != nil {
			c.drop(err)
			return
		}
	}
	if c.assembler != nil && c.assembler.size > c.max {
		c.drop(errTooLarge)
	}
}

// drop gives the memory back.
func (c *Collector) drop(err error) {
	c.err = asNotStorable(err)
	c.body, c.assembler, c.checker, c.events = nil, nil, nil, events{}
}

// Finish ends an answer that came whole, and returns it in the form in which it is stored. The error wraps
// ErrNotStorable and says why nothing is. The collector is spent afterwards.
func (c *Collector) Finish() (contentType string, body []byte, err error) {
	if c.err == nil && c.streaming {
		if err := c.events.close(); err != nil {
			c.drop(err)
		}
	}
	if c.err == nil {
		contentType, body, c.err = c.finish()
	}
	if c.err != nil {
		return "", nil, c.err
	}
	return contentType, body, nil
}

func (c *Collector) finish() (contentType string, body []byte, err error) {
	switch {
	case c.assembler != nil:
		completion, err := c.assembler.complete()
		if err != nil {
			return "", nil, asNotStorable(err)
		}
		if body = completion.append(nil); len(body) > c.max {
			return "", nil, asNotStorable(errTooLarge)
		}
		return contentJSON, body, nil
	case c.checker != nil:
		return contentSSE, c.body, c.checker.complete()
	}
	return contentJSON, c.body, storableJSON(c.endpoint, c.body)
}

// mediaType is a content type without its parameters.
func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}
