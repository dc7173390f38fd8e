package envoy

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// maxSocketPath is the longest path of a Unix socket: sun_path is 108 bytes on Linux and 104 on macOS, with the final
// NUL.
const maxSocketPath = 103

// parseAddress reads "host:port" or "unix:/path". A missing host means all IPv4 addresses.
func parseAddress(s string) (*corev3.Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		switch {
		case path == "":
			return nil, fmt.Errorf("%q: no path after \"unix:\"", s)
		case len(path) > maxSocketPath:
			return nil, fmt.Errorf("%q: a socket path has at most %d bytes, this has %d", s, maxSocketPath, len(path))
		case strings.ContainsRune(path, 0):
			return nil, fmt.Errorf("%q: a socket path has no NUL", s)
		}
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return nil, fmt.Errorf("%q: want host:port or unix:/path", s)
	}
	number, err := parsePort(port)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", s, err)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return socketAddress(host, number), nil
}

// bindAddress is parseAddress for an address Envoy listens on, which must be an IP address or localhost.
func bindAddress(s string) (*corev3.Address, error) {
	addr, err := parseAddress(s)
	if err != nil {
		return nil, err
	}
	socket := addr.GetSocketAddress()
	if socket == nil {
		return addr, nil
	}
	if socket.Address == "localhost" {
		socket.Address = "127.0.0.1"
	}
	if _, err := netip.ParseAddr(socket.Address); err != nil {
		return nil, fmt.Errorf("%q: Envoy listens on IP addresses, not on names", s)
	}
	return addr, nil
}

func socketAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func parsePort(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port %q is not a number from 0 to 65535", s)
	}
	return uint32(n), nil
}

// endpoint is where a deployment's URL points: what Envoy needs of it to connect.
type endpoint struct {
	host string // a name or an IP address, without brackets
	port uint32
	tls  bool
}

// parseEndpoint reads a deployment's URL. The path is the filter's business and not looked at.
func parseEndpoint(raw string) (endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// url.Error repeats the whole URL, which may hold a password.
		return endpoint{}, fmt.Errorf("not a URL")
	}
	e := endpoint{host: u.Hostname()}
	switch u.Scheme {
	case "https":
		e.tls, e.port = true, 443
	case "http":
		e.port = 80
	default:
		return endpoint{}, fmt.Errorf("scheme %q is not http or https", u.Scheme)
	}
	if u.User != nil {
		return endpoint{}, fmt.Errorf("a URL with a user or password: use credential")
	}
	if e.host == "" {
		return endpoint{}, fmt.Errorf("no host")
	}
	if port := u.Port(); port != "" {
		if e.port, err = parsePort(port); err != nil {
			return endpoint{}, err
		}
		if e.port == 0 {
			return endpoint{}, fmt.Errorf("port 0 cannot be connected to")
		}
	}
	if !isIP(e.host) && !hostname(e.host) {
		return endpoint{}, fmt.Errorf("host %q is neither a name nor an IP address", e.host)
	}
	return e, nil
}

// hostname reports whether s can be looked up in DNS. Underscores are no part of host names but common in the names of
// services.
func hostname(s string) bool {
	if len(s) > 253 {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
		default:
			return false
		}
	}
	return true
}
