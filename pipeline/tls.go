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
)

// secureConn is a connection over TLS.
type secureConn struct {
	*tls.Conn
	plain *conn
	// doubt is why the server may end the connection before it has sent anything: it has asked for a client's certificate.
	// In TLS 1.3 the client's part of the handshake is over before it looks at that, and its own word is lost when it closes
	// while a command is on its way.
	doubt error
	heard atomic.Bool // something was read: the server lets the connection be
}

var (
	errNoCertificate  = errors.New("the server asked for a client's certificate, and none is set (?cert=FILE&key=FILE)")
	errBadCertificate = errors.New("the server asked for a client's certificate, and may have refused the one that is set (?cert=)")
)

// handshake makes a connection to addr a secure one, or closes it.
func handshake(ctx context.Context, plain *conn, config *tls.Config, network, addr string) (net.Conn, error) {
	c := &secureConn{plain: plain}
	own := config.Clone()
	if own.ServerName == "" {
		own.ServerName, _, _ = net.SplitHostPort(addr)
	}
	own.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(own.Certificates) == 0 {
			c.doubt = errNoCertificate
			return new(tls.Certificate), nil // none
		}
		c.doubt = errBadCertificate
		return &own.Certificates[0], nil
	}
	c.Conn = tls.Client(plain, own)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("tls: %s: %w", addr, err)} // no command was sent yet
	}
	return c, nil
}

// SyscallConn lets go-redis peek whether an idle connection was closed by the server. Between two replies there is nothing
// to read of a connection that is well, over TLS too.
func (c *secureConn) SyscallConn() (syscall.RawConn, error) { return c.plain.SyscallConn() }

// Write explains the end of a connection that has not been heard of.
func (c *secureConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.explain(err)
}

// Read does too.
func (c *secureConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, c.explain(err)
}

func (c *secureConn) explain(err error) error {
	if err == nil || c.doubt == nil || c.heard.Load() || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", c.doubt, err)
}
