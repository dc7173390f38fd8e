package cache

import (
	"bytes"
	"errors"
)

// events cuts a stream of server-sent events into the data of each: lines end with LF, CR or CRLF, several data lines
// are joined by LF, comments and other fields are passed over, and the last event needs no blank line.
type events struct {
	emit func(data []byte) error // gets each event's data, valid during the call
	max  int                     // of one event, in bytes; 0: no bound

	line    []byte // the start of a line whose end has not come
	data    []byte
	hasData bool
	afterCR bool // a LF that comes next belongs to the line before
	begun   bool
}

var errEventTooLarge = errors.New("an event is too large")

// write takes the next bytes of the stream, cut anywhere. After an error the stream is spoilt.
func (e *events) write(p []byte) error {
	if e.afterCR && len(p) > 0 {
		e.afterCR = false
		if p[0] == '\n' {
			p = p[1:]
		}
	}
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			e.line = append(e.line, p...)
			return e.bounded()
		}
		line := p[:i]
		if len(e.line) > 0 {
			e.line = append(e.line, line...)
			line = e.line
		}
		if err := e.endLine(line); err != nil {
			return err
		}
		e.line = e.line[:0]
		switch {
		case p[i] == '\n':
			p = p[i+1:]
		case i+1 == len(p):
			e.afterCR = true
			return nil
		case p[i+1] == '\n':
			p = p[i+2:]
		default:
			p = p[i+1:]
		}
	}
	return nil
}

// close ends the stream.
func (e *events) close() error {
	if len(e.line) > 0 {
		if err := e.endLine(e.line); err != nil {
			return err
		}
	}
	return e.endEvent()
}

func (e *events) endLine(line []byte) error {
	if !e.begun {
		e.begun = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	if len(line) == 0 {
		return e.endEvent()
	}
	value, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok || len(value) > 0 && value[0] != ':' {
		return nil
	}
	value = bytes.TrimPrefix(bytes.TrimPrefix(value, []byte(":")), []byte(" "))
	if e.hasData {
		e.data = append(e.data, '\n')
	}
	e.hasData = true
	e.data = append(e.data, value...)
	return e.bounded()
}

func (e *events) endEvent() error {
	if !e.hasData {
		return nil
	}
	err := e.emit(e.data)
	e.data, e.hasData = e.data[:0], false
	return err
}

func (e *events) bounded() error {
	if e.max > 0 && len(e.line)+len(e.data) > e.max {
		return errEventTooLarge
	}
	return nil
}
