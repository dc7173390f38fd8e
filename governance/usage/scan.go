package usage

import "slices"

// node is a place in the shape of an answer: an index into a shape. Node 0 is never looked into.
type node uint8

// action is what the scanner does with a value.
type action uint8

const (
	skip   action = iota // pass over it
	walk                 // look into it when it is an object or array, pass over it otherwise
	raw                  // hand it to the sink as it is written
	length               // add the bytes of its text to the sink's count; look into it when it is an object or array
)

// place says what is done at one node and where its children are.
type place struct {
	action   action
	members  []edge // of an object
	elements node   // of an array
}

// edge leads to the value of one name.
type edge struct {
	name string
	to   node
}

// shape describes what a dialect wants to know of an answer. A new dialect is a shape and a sink.
type shape []place

// sink is told what the scanner finds. A raw value is valid during the call only; it is nil when it was over maxRaw.
type sink interface {
	enter(n node) // an object or array that is walked begins
	leave(n node) // and ends
	value(n node, raw []byte)
	text(bytes int) // decoded bytes of text
}

// Bounds on what an upstream can make the scanner keep.
const (
	maxRaw    = 16 << 10 // bytes of a value handed over whole; a longer one is passed over
	maxLevels = 24       // containers walked into; deeper ones are passed over
	maxKey    = 40       // bytes of a name; a longer one is no name we know
)

// mode is where the scanner stands between two bytes.
type mode uint8

const (
	between  mode = iota // tokens
	inKey                // a name
	inString             // a string value
	inScalar             // a number, true, false or null
	inSkip               // a container that is passed over
	inRaw                // a value that is handed over
)

// level is one container that is being walked.
type level struct {
	node  node
	array bool
	key   bool // an object in which a name comes next
	child node // where the value after the name goes
}

// scanner reads JSON in pieces of any size and in constant memory. It looks for values at known places and does not
// judge: what is no JSON makes it broken at worst. The zero value with a shape and a sink is ready for one document.
type scanner struct {
	shape shape
	sink  sink

	mode    mode
	escaped bool // the previous byte was a backslash inside a string
	quoted  bool // inside a string of a container that is passed over, or of a raw value
	hex     int  // digits of a \u escape still to come
	code    rune // of that escape
	count   bool // the string's text counts

	levels []level
	nested int    // containers open below a skipped or raw one, itself included
	at     node   // of the value being read
	key    []byte // the name being read
	raw    []byte // the value being read
	long   bool   // the key or the raw value is over its bound

	closed bool // the root has ended
	broken bool // something does not nest
}

// reset makes the scanner ready for the next document, with its memory kept.
func (s *scanner) reset() {
	*s = scanner{shape: s.shape, sink: s.sink, levels: s.levels[:0], key: s.key[:0], raw: s.raw[:0]}
}

// whole reports whether the document was one object or array, and ended.
func (s *scanner) whole() bool { return s.closed && !s.broken }

// feed reads the next piece.
func (s *scanner) feed(p []byte) {
	for i := 0; i < len(p) && !s.broken; {
		switch s.mode {
		case between:
			i = s.token(p, i)
		case inKey:
			i = s.readKey(p, i)
		case inString:
			i = s.readString(p, i)
		case inScalar:
			i = s.readScalar(p, i)
		case inSkip:
			i = s.readNested(p, i, false)
		case inRaw:
			i = s.readNested(p, i, true)
		}
	}
}

// token reads one byte between values.
func (s *scanner) token(p []byte, i int) int {
	switch c := p[i]; c {
	case ' ', '\t', '\n', '\r':
	case ',':
		if top := s.top(); top != nil {
			top.key = !top.array
		}
	case ':':
		if top := s.top(); top != nil {
			top.key = false
		}
	case '}', ']':
		s.close(c == ']')
	case '"':
		if top := s.top(); top != nil && top.key {
			s.mode, s.key, s.long = inKey, s.key[:0], false
			return i + 1
		}
		return s.begin(p, i)
	default:
		return s.begin(p, i)
	}
	return i + 1
}

func (s *scanner) top() *level {
	if len(s.levels) == 0 {
		return nil
	}
	return &s.levels[len(s.levels)-1]
}

// begin starts the value whose first byte is p[i] and returns where to go on.
func (s *scanner) begin(p []byte, i int) int {
	if s.closed {
		s.broken = true
		return i
	}
	s.at = 1
	if top := s.top(); top != nil {
		s.at = top.child
	}
	at, c := s.shape[s.at], p[i]
	container := c == '{' || c == '['
	switch {
	case len(s.levels) == 0 && !container:
		s.broken = true // a bare scalar is no answer
	case at.action == raw:
		s.mode, s.raw, s.long, s.nested, s.quoted = inRaw, s.raw[:0], false, 0, false
	case container && at.action != skip && len(s.levels) < maxLevels:
		s.open(c == '[')
		return i + 1
	case container:
		s.mode, s.nested, s.quoted = inSkip, 0, false
	case c == '"':
		s.mode, s.count = inString, at.action == length
		return i + 1
	default:
		s.mode = inScalar
	}
	return i
}

func (s *scanner) open(array bool) {
	l := level{node: s.at, array: array, key: !array}
	if array {
		l.child = s.shape[s.at].elements
	}
	s.levels = append(s.levels, l)
	s.sink.enter(s.at)
}

func (s *scanner) close(array bool) {
	top := s.top()
	if top == nil || top.array != array {
		s.broken = true
		return
	}
	s.levels = s.levels[:len(s.levels)-1]
	s.closed = len(s.levels) == 0
	s.sink.leave(top.node)
}

// readKey reads a name up to its closing quote. A name with an escape is none of ours.
func (s *scanner) readKey(p []byte, i int) int {
	start := i
	for ; i < len(p); i++ {
		switch c := p[i]; {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped, s.long = true, true
		case c == '"':
			key := p[start:i]
			if len(s.key) > 0 || s.long {
				s.keepKey(key)
				key = s.key
			}
			top := s.top()
			top.key, top.child = false, s.child(top.node, key)
			s.mode = between
			return i + 1
		}
	}
	s.keepKey(p[start:])
	return i
}

// keepKey adds a part of a name that is read in several pieces.
func (s *scanner) keepKey(part []byte) {
	if len(s.key)+len(part) > maxKey {
		s.long = true
		return
	}
	s.key = append(s.key, part...)
}

func (s *scanner) child(n node, key []byte) node {
	if s.long {
		return 0
	}
	for _, e := range s.shape[n].members {
		if e.name == string(key) {
			return e.to
		}
	}
	return 0
}

// readString reads a string value and counts what its text is long.
func (s *scanner) readString(p []byte, i int) int {
	n := 0
	for i < len(p) {
		start := i
		if !s.escaped && s.hex == 0 {
			for i < len(p) && p[i] != '"' && p[i] != '\\' {
				i++
			}
			n += i - start
			if i == len(p) {
				break
			}
		}
		c := p[i]
		i++
		switch {
		case s.hex > 0:
			n += s.hexDigit(c)
		case s.escaped:
			s.escaped = false
			if c == 'u' {
				s.hex, s.code = 4, 0
			} else {
				n++
			}
		case c == '\\':
			s.escaped = true
		default:
			s.mode = between
			s.counted(n)
			return i
		}
	}
	s.counted(n)
	return i
}

func (s *scanner) counted(n int) {
	if s.count && n > 0 {
		s.sink.text(n)
	}
}

// hexDigit reads one digit of a \u escape and, at the last, returns the bytes that its character has in UTF-8. The
// first half of a surrogate pair has all four.
func (s *scanner) hexDigit(c byte) int {
	s.code = s.code<<4 | hexRune([]byte{c})
	if s.hex--; s.hex > 0 {
		return 0
	}
	switch r := s.code; {
	case r < 0x80:
		return 1
	case r < 0x800:
		return 2
	case r >= 0xD800 && r < 0xDC00:
		return 4
	case r >= 0xDC00 && r < 0xE000:
		return 0
	}
	return 3
}

// readScalar passes over a number or a literal; the byte that ends it is read again.
func (s *scanner) readScalar(p []byte, i int) int {
	for ; i < len(p); i++ {
		if endsScalar(p[i]) {
			s.mode = between
			return i
		}
	}
	return i
}

func endsScalar(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// readNested reads a value to its end, only to pass over it or to keep it.
func (s *scanner) readNested(p []byte, i int, keep bool) int {
	start := i
	for i < len(p) {
		if s.quoted {
			if i = s.readQuoted(p, i); !s.quoted && s.nested == 0 {
				return s.end(p, start, i, keep)
			}
			continue
		}
		switch c := p[i]; {
		case c == '"':
			s.quoted = true
		case c == '{' || c == '[':
			s.nested++
		case s.nested == 0 && endsScalar(c):
			return s.end(p, start, i, keep)
		case c == '}' || c == ']':
			if s.nested--; s.nested == 0 {
				return s.end(p, start, i+1, keep)
			}
		}
		i++
	}
	if keep {
		s.keep(p[start:])
	}
	return i
}

// readQuoted reads a string inside such a value up to behind its closing quote.
func (s *scanner) readQuoted(p []byte, i int) int {
	for ; i < len(p); i++ {
		switch {
		case s.escaped:
			s.escaped = false
		case p[i] == '\\':
			s.escaped = true
		case p[i] == '"':
			s.quoted = false
			return i + 1
		}
	}
	return i
}

// end finishes a value that was passed over or kept.
func (s *scanner) end(p []byte, start, end int, keep bool) int {
	s.mode = between
	if keep {
		s.keep(p[start:end])
		if s.long {
			s.sink.value(s.at, nil)
		} else {
			s.sink.value(s.at, s.raw)
		}
	}
	return end
}

func (s *scanner) keep(b []byte) {
	if s.long || len(s.raw)+len(b) > maxRaw {
		s.long = true
		return
	}
	s.raw = append(slices.Grow(s.raw, len(b)), b...)
}
