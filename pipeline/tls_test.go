package pipeline_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// secured is a server's URL with a query that names files.
func secured(base string, files ...string) string {
	query := url.Values{}
	for i := 0; i < len(files); i += 2 {
		query.Set(files[i], files[i+1])
	}
	return base + "?" + query.Encode()
}

// wants asks once and wants what is wrong to be named, and no hang.
func wants(t *testing.T, b *pipeline.Backend, texts ...string) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := pipeline.Declare(b.Batch("r"), "o", pipeline.Bytes, "GET", "x").Get(t.Context())
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, pipeline.ErrUnavailable) {
			t.Fatalf("err = %v", err)
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("err = %v, want it to say %q", err, text)
			}
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it hangs")
	}
}

func TestServerWithTLS(t *testing.T) {
	t.Parallel()
	server, strict := redistest.StartTLS(t), redistest.StartTLS(t, "--tls-auth-clients", "yes")
	bases := map[*redistest.TLSServer]string{server: server.URL(), strict: strict.URL()}
	for _, tt := range []struct {
		name   string
		to     *redistest.TLSServer
		files  []string
		wrong  []string // what the error says; none: it works
		plain  bool
		byName string // in place of the address
	}{
		{name: "its authority", to: server, files: []string{"cacert", server.CAFile}},
		{name: "by name", to: server, files: []string{"cacert", server.CAFile}, byName: "localhost"},
		{name: "a certificate that nobody asked for", to: server, files: []string{"cacert", server.CAFile, "cert", server.CertFile, "key", server.KeyFile}},
		{name: "a client's certificate", to: strict, files: []string{"cacert", strict.CAFile, "cert", strict.CertFile, "key", strict.KeyFile}},
		{name: "the system's authorities", to: server, wrong: []string{"unknown authority", server.Addr()}},
		{name: "another authority", to: server, files: []string{"cacert", strict.CAFile}, wrong: []string{"unknown authority", server.Addr()}},
		{name: "no client's certificate", to: strict, files: []string{"cacert", strict.CAFile}, wrong: []string{"none is set (?cert="}},
		{name: "another's certificate", to: strict, files: []string{"cacert", strict.CAFile, "cert", server.CertFile, "key", server.KeyFile},
			wrong: []string{"may have refused the one that is set"}},
		{name: "without TLS", to: server, plain: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := bases[tt.to]
			if tt.byName != "" {
				base = strings.Replace(base, "127.0.0.1", tt.byName, 1)
			}
			opt := pipeline.Options{URL: secured(base, tt.files...), Deadline: 5 * time.Second}
			if tt.plain {
				opt.URL = "redis://" + tt.to.Addr()
				wants(t, open(t, opt))
				return
			}
			b := open(t, opt)
			if tt.wrong != nil {
				for range 5 { // the words do not depend on who closes first
					wants(t, open(t, opt), tt.wrong...)
				}
				return
			}
			for want := int64(1); want <= 3; want++ {
				n, err := pipeline.Eval(b.Batch("r"), "o", integer, count, []string{tt.name}).Get(t.Context())
				if n != want || err != nil {
					t.Errorf("%d, %v; want %d", n, err, want)
				}
			}
		})
	}
}

// A connection that the server has closed while it was idle costs no request, over TLS as without.
func TestIdleConnectionClosedByTheServer(t *testing.T) {
	t.Parallel()
	over, plain := redistest.StartTLS(t), redistest.Start(t)
	for name, to := range map[string]struct {
		server *redistest.Server
		url    string
	}{"tls": {over.Server, secured(over.URL(), "cacert", over.CAFile)}, "plain": {plain, plain.URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, pipeline.Options{URL: to.url, Deadline: 5 * time.Second})
			for range 5 {
				if err := counts(t, b, "n"); err != nil {
					t.Fatal(err)
				}
				if err := to.server.Client().ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond) // the end has arrived
			}
		})
	}
}

// A cluster of one server, for a cluster over TLS needs no more to show that each connection of it is one.
func TestClusterOverTLS(t *testing.T) {
	t.Parallel()
	peers, err := net.Listen("tcp", "127.0.0.1:0") // nobody will speak to that port
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(peers.Addr().String())
	_ = peers.Close()
	server := redistest.StartTLS(t, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", port)
	if err := server.Client().ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	b := open(t, pipeline.Options{URL: secured("rediss+cluster://"+server.Addr(), "cacert", server.CAFile), Deadline: 5 * time.Second})
	returns(t, "requests", func() error { return counts(t, b, "{a}n") }) // it takes a moment to say that it is complete
	d := pipeline.NewDeferred(b, pipeline.DeferredOptions{})
	w := d.Writes()
	w.Once("test", once, []string{"{a}:w:" + w.Writer(), "{a}:sum"}, 7)
	w.Close()
	drain(t, d)
	if got := sum(t, server.Server, "{a}:sum"); got != "7" {
		t.Errorf("sum = %s, want 7", got)
	}
	wants(t, open(t, pipeline.Options{URL: "rediss+cluster://" + server.Addr(), Deadline: 500 * time.Millisecond}))
}

// certificate makes one for hosts that signs itself, and returns it with the file that makes it trusted.
func certificate(t *testing.T, until time.Time, hosts ...string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// terminate speaks TLS at the address that it returns, and passes what is said on to another.
func terminate(t *testing.T, cert tls.Certificate, to string) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = client.Close() }()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(server, client)
					_ = server.Close()
				}()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	return l.Addr().String()
}

func TestCertificateThatWillNotDo(t *testing.T) {
	t.Parallel()
	tomorrow := time.Now().Add(24 * time.Hour)
	server := redistest.Start(t)
	for _, tt := range []struct {
		name  string
		until time.Time
		hosts []string
		wrong string
	}{
		{"good", time.Now().Add(time.Hour), []string{"127.0.0.1"}, ""},
		{"expired", time.Now().Add(-time.Minute), []string{"127.0.0.1"}, "expired"},
		{"not valid yet", tomorrow.Add(24 * time.Hour), []string{"127.0.0.1"}, "not yet valid"},
		{"another address", time.Now().Add(time.Hour), []string{"127.0.0.2"}, "127.0.0.1"},
		{"another name", time.Now().Add(time.Hour), []string{"redis.example"}, "127.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cert, file := certificate(t, tt.until, tt.hosts...)
			addr := terminate(t, cert, server.Addr())
			b := open(t, pipeline.Options{URL: secured("rediss://"+addr, "cacert", file), Deadline: 5 * time.Second})
			if tt.wrong == "" {
				if err := counts(t, b, "n"); err != nil {
					t.Error(err)
				}
				return
			}
			wants(t, b, addr, "x509: ", tt.wrong)
		})
	}
}

// A connection over TLS that is cut after the server has executed a request: it is not sent again.
func TestSentAtMostOnceOverTLS(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	cert, file := certificate(t, time.Now().Add(time.Hour), "127.0.0.1")
	addr := terminate(t, cert, proxy.Addr())
	b := open(t, pipeline.Options{URL: secured("rediss://"+addr, "cacert", file), Deadline: 5 * time.Second})
	c := contract{T: t, b: b, proxy: proxy, server: server}
	c.start()
	c.batch()
	c.atMostOnce()
	c.exactlyOnce()
}

// What is wrong with the files of a URL is said at the start.
func TestFilesOfTheURL(t *testing.T) {
	t.Parallel()
	server := redistest.StartTLS(t)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, url, wrong string
	}{
		{"no such authority", secured(server.URL(), "cacert", empty+"x"), "cacert: open "},
		{"no authority in it", secured(server.URL(), "cacert", empty), "cacert: no certificate in "},
		{"a certificate without a key", secured(server.URL(), "cert", server.CertFile), "cert and key: "},
		{"a key of another", secured(server.URL(), "cert", server.CAFile, "key", server.KeyFile), "cert and key: "},
		{"an unknown word", secured(server.URL(), "ca", server.CAFile), `unknown parameter "ca"`},
		{"files without TLS", secured("redis://"+server.Addr(), "cacert", server.CAFile), `unknown parameter "cacert"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := pipeline.Open(pipeline.Options{URL: tt.url})
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("err = %v, want it to say %q", err, tt.wrong)
			}
		})
	}
}
