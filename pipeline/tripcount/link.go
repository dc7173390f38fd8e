package tripcount

import (
	"errors"
	"io"
	"net"
	"sync"
)

// link is one client connection and its own connection to the upstream.
type link struct {
	proxy  *Proxy
	number int
	client net.Conn
	server net.Conn

	// done is closed by end.
	done chan struct{}
	once sync.Once

	mu sync.Mutex
	// open is the trip that waits for replies, nil between trips.
	open *Trip
	// waiting are the commands of open that are not answered, oldest first.
	waiting []awaited
	// streams is set once the connection carries messages instead of replies.
	streams bool
}

// awaited is a command without its reply.
type awaited struct {
	// first says that it opened its trip: the delay of the trip is taken before its reply.
	first bool
	// cut says that its reply must be lost.
	cut bool
}

// run pumps both directions until either side closes or a fault ends it.
func (l *link) run() {
	var pumps sync.WaitGroup
	pumps.Go(l.requests)
	pumps.Go(l.replies)
	pumps.Wait()
}

// drop ends the connection at both ends with a reset.
func (l *link) drop() { l.end(reset) }

// close ends the connection at both ends; what was passed on still arrives.
func (l *link) close() {
	// Close fails only for a connection that is closed already.
	l.end(func(conn net.Conn) { _ = conn.Close() })
}

func (l *link) end(how func(net.Conn)) {
	l.once.Do(func() {
		close(l.done)
		how(l.client)
		how(l.server)
	})
}

// requests passes commands to the server. The commands of one write of the client leave in one write. When the client
// closes, the server is told so and may still answer: it executes what it has been sent.
func (l *link) requests() {
	in := newFrames(l.client)
	for {
		before := len(in.raw)
		cmd, err := in.command()
		if errors.Is(err, io.EOF) {
			if half, ok := l.server.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				return
			}
		}
		if err != nil {
			l.close()
			return
		}
		l.proxy.record.touch()
		l.sent(cmd, len(in.raw)-before)
		if l.streaming() {
			l.copy(l.server, in)
			return
		}
		if in.more() {
			continue
		}
		if !l.pass(l.server, in.take()) {
			l.close()
			return
		}
	}
}

// replies passes the server's answers to the client.
func (l *link) replies() {
	defer l.close()
	in := newFrames(l.server)
	for {
		before := len(in.raw)
		kind, err := in.reply()
		if err != nil {
			return
		}
		l.proxy.record.touch()
		if l.streaming() {
			l.copy(l.client, in)
			return
		}
		ended, cut := l.answered(kind, len(in.raw)-before)
		if cut {
			l.pass(l.client, in.raw[:before])
			return
		}
		if !ended && in.more() {
			continue
		}
		if !l.pass(l.client, in.take()) {
			return
		}
	}
}

// sent notes a command. It must be noted before the server can see it.
func (l *link) sent(cmd []string, size int) {
	if len(cmd) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if streaming(cmd) {
		l.streams = true
		return
	}
	first := l.open == nil
	l.open = l.proxy.record.command(l.number, l.open, cmd, size)
	l.waiting = append(l.waiting, awaited{first: first, cut: l.proxy.faults.cut(cmd)})
}

// answered notes a reply, before it is passed on: the client's next command may follow at once. It sleeps for the delay
// of a trip before its first reply. ended says that the reply was the last of its trip, cut that it must be lost.
func (l *link) answered(kind byte, size int) (ended, cut bool) {
	l.mu.Lock()
	if kind == '>' || len(l.waiting) == 0 {
		l.mu.Unlock()
		return false, false
	}
	next := l.waiting[0]
	l.mu.Unlock()
	if next.cut {
		return false, true
	}
	if next.first {
		l.proxy.faults.sleep(l.done)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	trip := l.open
	l.waiting = l.waiting[1:]
	ended = len(l.waiting) == 0
	if ended {
		l.open = nil
	}
	l.proxy.record.reply(trip, size, ended)
	return ended, false
}

func (l *link) streaming() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams
}

// pass writes bytes on, after a stall.
func (l *link) pass(to net.Conn, raw []byte) bool {
	if !l.proxy.faults.wait(l.done) {
		return false
	}
	l.proxy.record.touch()
	_, err := to.Write(raw)
	return err == nil
}

// copy passes on what was read, then every byte as it comes, until either side closes.
func (l *link) copy(to net.Conn, in *frames) {
	defer l.close()
	buffer := make([]byte, 16<<10)
	raw := in.take()
	for l.pass(to, raw) {
		n, err := in.r.Read(buffer)
		if err != nil {
			return
		}
		raw = buffer[:n]
	}
}
