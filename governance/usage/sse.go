package usage

import "bytes"

// lines cuts a stream of server-sent events (WHATWG HTML, section 9.2) into its events without copying or decoding:
// LF, CR and CRLF end lines, in any mixture and across any cut; comments and fields other than data are passed over; several
// data lines are one datum joined by line feeds. A byte order mark is not for it to read.
type lines struct {
	handler eventHandler

	cr      bool // the last line ended with CR: a LF that follows belongs to it
	state   lineState
	field   int  // bytes of "data" matched
	pending bool // the event has a field line
	data    bool // the event has a data line
}

type lineState uint8

const (
	lineStart lineState = iota
	lineName            // so far it is a prefix of "data"
	lineColon           // behind "data:", where one blank is no content
	lineData            // inside the content
	lineOther           // a comment or another field
)

// eventHandler is told the events of a stream. Offsets are into the piece at hand.
type eventHandler interface {
	fieldAt(offset int)  // the first field line of an event begins
	datum(part []byte)   // a part of the event's data
	eventEnd(offset int) // a blank line ended the event; offset is behind the line's end
	lateLF(offset int)   // the LF of a CRLF whose CR ended the previous line, when it begins a piece; offset is behind it
}

// feed reads the next piece from i on.
func (l *lines) feed(p []byte, i int) {
	nextCR := -1 // the first CR from i on, len(p) for none: looked up once, not once a line
	for i < len(p) {
		if l.cr {
			l.cr = false
			if p[i] == '\n' {
				i++
				if i == 1 {
					l.handler.lateLF(i)
				}
				continue
			}
		}
		if nextCR < i {
			nextCR = i + indexOr(p[i:], '\r')
		}
		end := i + indexOr(p[i:nextCR], '\n')
		l.content(p[i:end], i)
		if end == len(p) {
			return
		}
		l.cr = p[end] == '\r'
		i = end + 1
		behind := i
		if l.cr && i < len(p) && p[i] == '\n' {
			behind = i + 1
		}
		l.lineEnd(behind)
	}
}

// indexOr is bytes.IndexByte with the length for "none".
func indexOr(b []byte, c byte) int {
	if i := bytes.IndexByte(b, c); i >= 0 {
		return i
	}
	return len(b)
}

// content reads a part of one line.
func (l *lines) content(p []byte, offset int) {
	const name = "data"
	for i := 0; i < len(p); i++ {
		switch c := p[i]; l.state {
		case lineStart:
			if c != ':' && !l.pending {
				l.pending = true
				l.handler.fieldAt(offset + i)
			}
			l.state, l.field = lineOther, 1
			if c == name[0] {
				l.state = lineName
			}
		case lineName:
			switch {
			case l.field < len(name) && c == name[l.field]:
				l.field++
			case l.field == len(name) && c == ':':
				l.state = lineColon
				l.dataLine()
			default:
				l.state = lineOther
			}
		case lineColon:
			l.state = lineData
			if c != ' ' {
				i--
			}
		case lineData:
			l.handler.datum(p[i:])
			return
		case lineOther:
			return
		}
	}
}

// dataLine begins the content of a data line.
func (l *lines) dataLine() {
	if l.data {
		l.handler.datum([]byte{'\n'})
	}
	l.data = true
}

// lineEnd ends a line; an empty one ends the event.
func (l *lines) lineEnd(behind int) {
	blank := l.state == lineStart
	l.state = lineStart
	if blank && l.pending {
		l.pending, l.data = false, false
		l.handler.eventEnd(behind)
	}
}

// close ends a stream whose last line or blank line is missing.
func (l *lines) close() {
	if l.state != lineStart {
		l.lineEnd(0)
	}
	l.lineEnd(0)
}
