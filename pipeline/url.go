package pipeline

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// target is a Redis as its URL says it.
type target struct {
	network            string // tcp or unix
	hosts              []string
	username, password string
	db                 int
	cluster            bool
	master             string // its name, when the hosts are sentinels
	tls                *tls.Config
	hides              bool // the URL may hold a password
}

// quote is a part of the URL for an error. Where the password stands is not certain in a URL that cannot be read, so
// nothing is shown of one that may hold any.
func (t *target) quote(part string) string {
	if t.hides {
		return "a part of it (in user and password / ? and @ must be percent-encoded)"
	}
	return strconv.Quote(part)
}

// The ports of a URL that names none.
const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// parse reads a URL; see Options.URL for the shapes. Its errors never repeat the URL, which may hold a password.
func parse(s string) (*target, error) {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		return nil, errors.New("redis url: must be one such as redis://127.0.0.1:6379/0")
	}
	rest, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("redis url: its query cannot be read")
	}
	t := &target{network: "tcp", hides: strings.Contains(s, "@")}
	if scheme == "unix" {
		return t.unix(rest, values)
	}
	authority, path, _ := strings.Cut(rest, "/")
	if err := t.user(authority); err != nil {
		return nil, err
	}
	if strings.Contains(path, "@") {
		return nil, errors.New("redis url: in user and password / must be percent-encoded")
	}
	port := redisPort
	switch scheme {
	case "redis", "rediss":
	case "redis+cluster", "rediss+cluster":
		t.cluster = true
	case "redis+sentinel", "rediss+sentinel":
		t.master, path, _ = strings.Cut(path, "/")
		if port = sentinelPort; t.master == "" {
			return nil, errors.New("redis url: must name the master, such as redis+sentinel://h1:26379,h2:26379/mymaster/0")
		}
	default:
		return nil, fmt.Errorf("redis url: unknown scheme: %s", t.quote(scheme))
	}
	if err := t.setHosts(authority[strings.LastIndexByte(authority, '@')+1:], port); err != nil {
		return nil, err
	}
	if err := t.database(path); err != nil {
		return nil, err
	}
	return t, t.secure(strings.HasPrefix(scheme, "rediss"), values)
}

// unix reads unix:///path?db=n.
func (t *target) unix(path string, query url.Values) (*target, error) {
	if !strings.HasPrefix(path, "/") || len(path) < 2 {
		return nil, errors.New("redis url: unix:// needs an absolute path, such as unix:///run/redis.sock")
	}
	t.network, t.hosts = "unix", []string{path}
	return t, t.database(query.Get("db"))
}

// user takes user:password@ off an authority.
func (t *target) user(authority string) error {
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return nil
	}
	name, password, _ := strings.Cut(authority[:at], ":")
	var wrong [2]error
	t.username, wrong[0] = url.PathUnescape(name)
	t.password, wrong[1] = url.PathUnescape(password)
	if wrong[0] != nil || wrong[1] != nil {
		return errors.New("redis url: user and password must be percent-encoded")
	}
	return nil
}

func (t *target) setHosts(list, port string) error {
	if list == "" {
		list = "localhost"
	}
	for h := range strings.SplitSeq(list, ",") {
		host, p, err := net.SplitHostPort(h)
		if err != nil {
			host, p = h, port
			if strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]") {
				host = h[1 : len(h)-1]
			}
		}
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 || !hostname(host) {
			return fmt.Errorf("redis url: no host:port: %s", t.quote(h))
		}
		t.hosts = append(t.hosts, net.JoinHostPort(host, p))
	}
	if len(t.hosts) > 1 && !t.cluster && t.master == "" {
		return errors.New("redis url: several hosts need redis+cluster:// or redis+sentinel://")
	}
	return nil
}

// hostname says whether this can be a host. With colons it must be an IPv6 address: h:6379:1 is a slip.
func hostname(s string) bool {
	if strings.Contains(s, ":") {
		_, err := netip.ParseAddr(s)
		return err == nil
	}
	return s != "" && !strings.ContainsAny(s, "[]@ ")
}

func (t *target) database(text string) error {
	if text == "" {
		return nil
	}
	db, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return fmt.Errorf("redis url: no database number: %s", t.quote(text))
	}
	if t.db = int(db); t.cluster && db != 0 { //nolint:gosec // it has 16 bits
		return errors.New("redis url: a cluster has only database 0")
	}
	return nil
}

// secure sets up TLS. The authority of the server's certificate is one of the system's, or of the file ?cacert=; a
// client certificate is ?cert= and ?key=.
func (t *target) secure(on bool, query url.Values) error {
	for name := range query {
		if name != "cacert" && name != "cert" && name != "key" || !on {
			return fmt.Errorf("redis url: unknown parameter %s (rediss:// takes cacert, cert and key)", t.quote(name))
		}
	}
	if !on {
		return nil
	}
	t.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if file := query.Get("cacert"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("redis url: cacert: %w", err)
		}
		t.tls.RootCAs = x509.NewCertPool()
		if !t.tls.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("redis url: cacert: no certificate in %s", file)
		}
	}
	cert, key := query.Get("cert"), query.Get("key")
	if cert == "" && key == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("redis url: cert and key: %w", err)
	}
	t.tls.Certificates = []tls.Certificate{pair}
	return nil
}

// SameStore says whether two URLs mean the same server, cluster or master and the same database, so that one backend will
// do for both. Who asks, and how, does not matter.
func SameStore(a, b string) bool {
	x, err := parse(a)
	if err != nil {
		return false
	}
	y, err := parse(b)
	if err != nil {
		return false
	}
	return x.db == y.db && x.sameServer(y)
}

// sameServer says whether two targets are the same server, cluster or master, as far as their URLs tell.
func (t *target) sameServer(other *target) bool {
	if t.network != other.network || t.cluster != other.cluster || t.master != other.master {
		return false
	}
	for _, h := range t.hosts {
		if slices.Contains(other.hosts, h) {
			return true
		}
	}
	return false
}
