package providertest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// exchange is one connection to the provider. It is written on the socket itself, not on net/http's server, to have the
// raw bytes of each request and the last word on each byte of the answer.
type exchange struct {
	provider *Provider
	number   int
	conn     net.Conn
	in       *bufio.Reader
	// raw is what was read from the connection and belongs to no logged hit yet, in's buffer included.
	raw bytes.Buffer
}

func newExchange(p *Provider, number int, conn net.Conn) *exchange {
	e := &exchange{provider: p, number: number, conn: conn}
	e.in = bufio.NewReader(io.TeeReader(conn, &e.raw))
	return e
}

// serve answers one request after the other until the connection ends.
func (e *exchange) serve() {
	defer e.conn.Close()
	for {
		hit, keep, err := e.read()
		if err != nil {
			return
		}
		reply := e.provider.arrived(hit)
		gone := e.watch()
		done := e.answer(reply, hit.Method, gone)
		e.provider.ended(hit, done)
		if !done || !keep || reply.Break != NoBreak {
			return
		}
		// The watch ends with the first byte of the next request, or with the connection.
		<-gone.ended
	}
}

// read reads one request. Keep says whether the connection outlives its answer.
func (e *exchange) read() (hit *Hit, keep bool, err error) {
	r, err := http.ReadRequest(e.in)
	if err != nil {
		return nil, false, err
	}
	if strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(e.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil, false, err
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, false, err
	}
	raw := bytes.Clone(e.raw.Next(e.raw.Len() - e.in.Buffered()))
	return &Hit{
		Conn: e.number, At: time.Now(), Method: r.Method, Path: r.RequestURI, Host: r.Host, Header: r.Header,
		Body: body, Raw: raw,
	}, !r.Close, nil
}

// watch is told when the client goes while it is being answered.
type watch struct {
	// left is closed when the connection ends.
	left chan struct{}
	// ended is closed when the watch is over: the connection has ended or the next request has begun.
	ended chan struct{}
}

// watch reads ahead, without taking, for the end of the connection.
func (e *exchange) watch() watch {
	w := watch{left: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		if _, err := e.in.Peek(1); err != nil {
			close(w.left)
		}
	}()
	return w
}

// answer writes the reply and says whether that was possible to its scripted end.
func (e *exchange) answer(r Reply, method string, gone watch) bool {
	if !e.pause(r.Delay, gone) {
		return false
	}
	switch r.Break {
	case ResetBeforeHeaders:
		return e.reset()
	case HangBeforeHeaders:
		return e.hang(gone)
	}
	frame := r.framing()
	if !e.write([]byte(head(r, frame))) {
		return false
	}
	if r.Break == ResetAfterHeaders {
		return e.reset()
	}
	if method != http.MethodHead && !e.body(r, frame, gone) {
		return false
	}
	switch r.Break {
	case ResetAfterBody:
		return e.reset()
	case HangAfterBody:
		return e.hang(gone)
	}
	if frame.chunked && r.Break == NoBreak && method != http.MethodHead {
		return e.write([]byte("0\r\n\r\n"))
	}
	return true
}

// body writes Body and Chunks.
func (e *exchange) body(r Reply, frame framing, gone watch) bool {
	for _, chunk := range slices.Concat([]Chunk{{Data: r.Body}}, r.Chunks) {
		if !e.pause(chunk.After, gone) {
			return false
		}
		data := chunk.Data
		if len(data) == 0 {
			continue
		}
		if frame.chunked {
			data = fmt.Appendf(nil, "%x\r\n%s\r\n", len(data), data)
		}
		if !e.write(data) {
			return false
		}
	}
	return true
}

// head is the status line and the headers.
func head(r Reply, frame framing) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", r.status(), http.StatusText(r.status()))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	return b.String() + frame.head + "\r\n"
}

// write sends bytes at once: TCP_NODELAY is Go's default, so each call is a segment of its own on an idle connection.
func (e *exchange) write(data []byte) bool {
	_, err := e.conn.Write(data)
	return err == nil
}

// pause waits; false when the client or the test ends first.
func (e *exchange) pause(d time.Duration, gone watch) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-gone.left:
		return false
	case <-e.provider.closing:
		return false
	}
}

// hang waits for the client or the test to end. Hanging is this answer's script, and its end is the client's.
func (e *exchange) hang(gone watch) bool {
	select {
	case <-gone.left:
	case <-e.provider.closing:
	}
	return false
}

// reset ends the connection with a TCP reset.
func (e *exchange) reset() bool {
	if tcp, ok := e.conn.(*net.TCPConn); ok && tcp.SetLinger(0) != nil {
		return false
	}
	return e.conn.Close() == nil
}
