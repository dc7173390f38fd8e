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
	// waiting are the commands of open that are not answered, oldest first: whether the reply must be lost.
	waiting []bool
	// streams is set once the connection carries messages instead of replies.
	streams bool
	// stranded is set once nothing passes any more, for good.
	stranded bool
}

// pieceSize is how many bytes are gathered before they are passed on, whether or not there are more.
const pieceSize = 64 << 10

// run pumps both directions until either side closes or a fault ends it.
func (l *link) run() {
	var pumps sync.WaitGroup
	server := &late{conn: l.server, faults: &l.proxy.faults, done: l.done, start: pumps.Go, more: make(chan struct{}, 1)}
	pumps.Go(l.requests)
	pumps.Go(func() { l.replies(server) })
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

// requests passes commands to the server. The commands of one write of the client leave in one write, unless it is long.
// When the client closes, the server is told so and may still answer: it executes what it has been sent.
func (l *link) requests() {
	in := newFrames(l.client)
	for {
		before := len(in.raw)
		cmd, err := in.command()
		if err != nil && l.lost() {
			return
		}
		if errors.Is(err, io.EOF) {
			if half, ok := l.server.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				return
			}
		}
		if err != nil {
			l.close()
			return
		}
		if l.sent(cmd, len(in.raw)-before) {
			l.copy(l.server, in)
			return
		}
		if in.more() && len(in.raw) < pieceSize {
			continue
		}
		if !l.pass(l.server, in.take()) {
			l.close()
			return
		}
	}
}

// replies passes the server's answers to the client.
func (l *link) replies(server io.Reader) {
	defer l.close()
	in := newFrames(server)
	for {
		before := len(in.raw)
		kind, err := in.reply()
		if err != nil {
			l.lost()
			return
		}
		ended, cut := l.answered(kind, len(in.raw)-before)
		if cut {
			l.pass(l.client, in.raw[:before])
			return
		}
		if l.streaming() && !l.awaiting() {
			l.copy(l.client, in)
			return
		}
		if !ended && in.more() && len(in.raw) < pieceSize {
			continue
		}
		if !l.pass(l.client, in.take()) {
			return
		}
	}
}

// sent notes a command, before the server can see it, and says whether messages follow instead of replies.
func (l *link) sent(cmd []string, size int) (streams bool) {
	if len(cmd) == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams = streaming(cmd)
	if upkeep(cmd) {
		l.open, l.waiting = nil, nil
		l.proxy.record.forget(l.number)
		return l.streams
	}
	l.open = l.proxy.record.command(l.number, l.open, cmd, size)
	l.waiting = append(l.waiting, l.proxy.faults.cut(cmd))
	return l.streams
}

// answered notes a reply, before it is passed on: the client's next command may follow at once. ended says that the reply
// was the last of its trip, cut that it must be lost.
func (l *link) answered(kind byte, size int) (ended, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// In RESP3 a push answers no command, but for a subscription's own.
	subscribes := l.streams && len(l.waiting) == 1
	if kind == '>' && !subscribes || len(l.waiting) == 0 {
		return false, false
	}
	if l.waiting[0] {
		return false, true
	}
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

func (l *link) awaiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) > 0
}

// touch notes that bytes passed. Messages do not count: a subscription's pings and a replica's acknowledgements never end.
func (l *link) touch() {
	if !l.streaming() {
		l.proxy.record.touch()
	}
}

// strand lets nothing pass any more.
func (l *link) strand() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stranded = true
}

// lost says whether the link is stranded, and does so only when the proxy ends it: neither end may notice anything.
func (l *link) lost() bool {
	l.mu.Lock()
	stranded := l.stranded
	l.mu.Unlock()
	if stranded {
		<-l.done
	}
	return stranded
}

// pass writes bytes on, after a stall.
func (l *link) pass(to net.Conn, raw []byte) bool {
	if !l.proxy.faults.wait(l.done) || l.lost() {
		return false
	}
	l.touch()
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
			l.lost()
			return
		}
		raw = buffer[:n]
	}
}
