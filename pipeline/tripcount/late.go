package tripcount

import (
	"bytes"
	"io"
	"net"
	"sync"
	"time"
)

// late is the server's side of a connection at the end of a long line: each byte arrives the set delay after it was sent.
// The line is long, not narrow: what follows is read meanwhile, however much it is, and arrives as much later.
type late struct {
	conn   net.Conn
	faults *faults
	done   <-chan struct{}  // closed when the connection has ended
	start  func(run func()) // starts a goroutine that the connection waits for

	// filled says that fill reads the connection. Until there is a delay nobody needs it.
	filled bool
	first  piece // what is left of the oldest

	mu     sync.Mutex
	pieces []piece
	err    error         // of the read after the last piece
	more   chan struct{} // holds one token when something was added
}

// piece is what one read found.
type piece struct {
	bytes []byte
	due   time.Time
}

// Read implements io.Reader for one goroutine.
func (l *late) Read(p []byte) (int, error) {
	if !l.filled {
		n, err := l.conn.Read(p)
		if due := l.faults.due(); n > 0 && !due.IsZero() {
			l.filled = true
			l.start(l.fill)
			l.wait(due)
		}
		return n, err
	}
	if len(l.first.bytes) == 0 {
		if err := l.next(); err != nil {
			return 0, err
		}
		l.wait(l.first.due)
	}
	return l.arrived(p), nil
}

// next waits for a piece.
func (l *late) next() error {
	for {
		l.mu.Lock()
		ended := l.err
		found := l.shift()
		l.mu.Unlock()
		if found {
			return nil
		}
		if ended != nil {
			return ended
		}
		select {
		case <-l.more:
		case <-l.done:
			return io.EOF
		}
	}
}

// shift makes the oldest piece the first, if there is one.
func (l *late) shift() bool {
	if len(l.pieces) == 0 {
		return false
	}
	l.first, l.pieces = l.pieces[0], l.pieces[1:]
	return true
}

// arrived copies what has arrived, up to the length of p: what came in many pieces goes on in few.
func (l *late) arrived(p []byte) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, n := time.Now(), 0
	for {
		moved := copy(p[n:], l.first.bytes)
		l.first.bytes = l.first.bytes[moved:]
		n += moved
		if n == len(p) || len(l.pieces) == 0 || l.pieces[0].due.After(now) {
			return n
		}
		l.shift()
	}
}

// wait returns when due has come, or the connection has ended.
func (l *late) wait(due time.Time) {
	left := time.Until(due)
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.done:
	}
}

// fill reads until the connection ends.
func (l *late) fill() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.conn.Read(buffer)
		l.mu.Lock()
		if n > 0 {
			l.pieces = append(l.pieces, piece{bytes: bytes.Clone(buffer[:n]), due: l.faults.due()})
		}
		l.err = err
		l.mu.Unlock()
		select {
		case l.more <- struct{}{}:
		default: // the token is there already
		}
		if err != nil {
			return
		}
	}
}
