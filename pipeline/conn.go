package pipeline

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// dialTimeout bounds one attempt to connect; a request's own deadline is shorter.
const dialTimeout = time.Second

// dialFunc opens a connection to an address.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer opens connections that can tell whether a failed write had sent anything.
func dialer(secure *tls.Config) dialFunc {
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		plain, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		sys, ok := plain.(syscall.Conn)
		if !ok {
			return nil, fmt.Errorf("connection to %s has no file descriptor", addr)
		}
		c := &conn{Conn: plain, raw: sys}
		if secure == nil {
			return c, nil
		}
		return handshake(ctx, c, secure, network, addr)
	}
}

// lateGrace is how long a reply that must be there already is looked for.
const lateGrace = time.Millisecond

// conn marks a write error with errNotWritten when nothing has left since the last reply: such a batch was certainly
// not executed.
type conn struct {
	net.Conn
	raw   syscall.Conn
	sent  atomic.Bool // bytes have been written since the last read
	heard atomic.Bool // anything has been read
}

// SyscallConn lets go-redis peek whether an idle connection was closed by the server.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 {
		c.sent.Store(true)
	}
	if err != nil && !c.sent.Load() {
		err = fmt.Errorf("%w: %w", errNotWritten, err)
	}
	return n, err
}

// Read takes a reply that lies in the socket also when the deadline has passed meanwhile: with thousands of goroutines
// ready to run, the one that waits here is woken late, and the runtime then looks at the deadline first.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.SetReadDeadline(time.Now().Add(lateGrace)) == nil {
		n, err = c.Conn.Read(b)
	}
	switch {
	case n > 0:
		c.sent.Store(false)
		c.heard.Store(true)
	case err != nil && !c.heard.Load():
		// go-redis greets first, and sends commands when that was answered: here none was. A proxy in front of a server
		// that is away accepts, and hangs up.
		err = fmt.Errorf("%w: %w", errNotWritten, err)
	}
	return n, err
}
