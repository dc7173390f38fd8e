package tripcount

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Bounds on what a peer may announce. Redis itself allows 512 MB a bulk string and a million arguments.
const (
	maxBulk  = 512 << 20
	maxItems = 1 << 20
	maxLine  = 64 << 10
	maxDepth = 32
)

var errProtocol = errors.New("malformed RESP")

// frames reads one direction of a RESP connection, item by item, and keeps the bytes it has read until they are taken.
// It is made for pipelines of many thousand commands: one of them costs no more than the strings that stay of it.
type frames struct {
	r   *bufio.Reader
	raw []byte
	// kept and sizes are of the command that is being read: what stays of its arguments, one after the other.
	kept  []byte
	sizes []int
}

func newFrames(r io.Reader) *frames { return &frames{r: bufio.NewReaderSize(r, 64<<10)} }

// more says whether bytes of a next item have arrived.
func (f *frames) more() bool { return f.r.Buffered() > 0 }

// take returns the bytes read since the last call, exactly as they came. They are valid until more is read.
func (f *frames) take() []byte {
	raw := f.raw
	f.raw = nil
	if cap(raw) <= 4*pieceSize { // what one big value took is given back
		f.raw = raw[:0]
	}
	return raw
}

// command reads one command: an array of bulk strings, or an inline command (words on a line). An empty line or array is
// a command without words, which Redis ignores.
func (f *frames) command() ([]string, error) {
	line, err := f.line()
	if err != nil {
		return nil, err
	}
	if len(line) == 0 || line[0] != '*' {
		return strings.Fields(string(line)), nil
	}
	n, err := length(line[1:], maxItems)
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	f.kept, f.sizes = f.kept[:0], f.sizes[:0]
	for range n {
		if err := f.argument(); err != nil {
			return nil, err
		}
	}
	return f.arguments(), nil
}

// argument reads one bulk string of a command and keeps of it what argKept allows.
func (f *frames) argument() error {
	line, err := f.line()
	if err != nil {
		return unexpected(err)
	}
	if len(line) == 0 || line[0] != '$' {
		return fmt.Errorf("argument is no bulk string: %w", errProtocol)
	}
	size, err := length(line[1:], maxBulk)
	if err != nil || size < 0 {
		return fmt.Errorf("argument length: %w", errProtocol)
	}
	start := len(f.raw)
	if err := f.skipBulk(size); err != nil {
		return unexpected(err)
	}
	size = min(size, argKept)
	f.kept = append(f.kept, f.raw[start:start+size]...)
	f.sizes = append(f.sizes, size)
	return nil
}

// arguments are those kept, all in the memory of one string.
func (f *frames) arguments() []string {
	if len(f.sizes) == 0 {
		return nil
	}
	args, rest := make([]string, len(f.sizes)), string(f.kept)
	for i, size := range f.sizes {
		args[i], rest = rest[:size], rest[size:]
	}
	return args
}

// reply reads one item of the server's side, RESP2 or RESP3, nested ones whole, and returns the byte that names its type.
// An attribute (|) belongs to the item that follows and is read with it; a push (>) answers no command.
func (f *frames) reply() (byte, error) { return f.item(0) }

func (f *frames) item(depth int) (byte, error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("nested deeper than %d: %w", maxDepth, errProtocol)
	}
	line, err := f.line()
	if err != nil {
		return 0, err
	}
	if len(line) == 0 {
		return 0, fmt.Errorf("empty line: %w", errProtocol)
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return kind, nil
	case '$', '!', '=':
		size, err := length(rest, maxBulk)
		if err != nil {
			return 0, err
		}
		if size >= 0 {
			err = f.skipBulk(size)
		}
		return kind, unexpected(err)
	case '*', '~', '>', '%', '|':
		n, err := length(rest, maxItems)
		if err != nil {
			return 0, err
		}
		if kind == '%' || kind == '|' {
			n *= 2
		}
		for range max(n, 0) {
			if _, err := f.item(depth + 1); err != nil {
				return 0, unexpected(err)
			}
		}
		if kind == '|' {
			kind, err := f.item(depth + 1)
			return kind, unexpected(err)
		}
		return kind, nil
	}
	return 0, fmt.Errorf("unknown type %q: %w", kind, errProtocol)
}

// line reads up to CRLF and returns what stands before it, valid until more is read. A bare LF ends an inline command too,
// as in Redis.
func (f *frames) line() ([]byte, error) {
	start := len(f.raw)
	for {
		part, err := f.r.ReadSlice('\n')
		f.raw = append(f.raw, part...)
		if len(f.raw)-start > maxLine {
			return nil, fmt.Errorf("line longer than %d bytes: %w", maxLine, errProtocol)
		}
		if err == nil {
			return bytes.TrimSuffix(f.raw[start:len(f.raw)-1], []byte{'\r'}), nil
		}
		if errors.Is(err, io.EOF) && len(f.raw) > start {
			return nil, io.ErrUnexpectedEOF
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// skipBulk reads size bytes and CRLF into raw, piece by piece: an announced length alone allocates nothing.
func (f *frames) skipBulk(size int) error {
	for left := size + 2; left > 0; {
		piece := min(left, 16<<10)
		part, err := f.r.Peek(piece)
		f.raw = append(f.raw, part...)
		if _, discardErr := f.r.Discard(len(part)); discardErr != nil {
			return discardErr
		}
		if err != nil {
			return err
		}
		left -= piece
	}
	if tail := f.raw[len(f.raw)-2:]; string(tail) != "\r\n" {
		return fmt.Errorf("bulk string of %d bytes does not end in CRLF: %w", size, errProtocol)
	}
	return nil
}

// length parses an announced length; -1 is the null of RESP2. Streamed types ("?") are not in use by any server.
func length(s []byte, limit int) (int, error) {
	n, err := strconv.Atoi(string(s))
	if err != nil || n < -1 || n > limit {
		return 0, fmt.Errorf("length %.32q: %w", s, errProtocol)
	}
	return n, nil
}

// unexpected turns the end of input inside an item into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
