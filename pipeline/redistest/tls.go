package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TLSServer is a server that speaks TLS only, with the files that a client needs.
type TLSServer struct {
	*Server
	// CAFile is the authority that signed both certificates; CertFile and KeyFile are a client's. All are PEM.
	CAFile, CertFile, KeyFile string
}

// StartTLS runs redis-server on a TLS port, with certificates of an authority that exists for this test only; the
// server's is for 127.0.0.1 and localhost. The args are as for Start. A client needs no certificate unless they say
// so: StartTLS(t, "--tls-auth-clients", "yes").
func StartTLS(t testing.TB, args ...string) *TLSServer {
	t.Helper()
	authority := newAuthority(t)
	serverCert, serverKey := authority.issue("server", x509.ExtKeyUsageServerAuth)
	s := &TLSServer{CAFile: authority.file}
	s.CertFile, s.KeyFile = authority.issue("client", x509.ExtKeyUsageClientAuth)
	s.Server = started(t, launch{kind: Redis, tls: s.config(t, authority), args: func(server *Server) []string {
		return append(append(server.defaults(), "--port", "0", "--tls-port", strconv.Itoa(server.ports[0]),
			"--tls-ca-cert-file", s.CAFile, "--tls-cert-file", serverCert, "--tls-key-file", serverKey,
			"--tls-auth-clients", "no"), args...)
	}})
	return s
}

// config is what a client with a certificate uses.
func (s *TLSServer) config(t testing.TB, a *authority) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		t.Fatalf("client certificate: %v", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

// authority signs certificates.
type authority struct {
	t    testing.TB
	dir  string
	file string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := a.template("authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	a.key = a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatalf("certificate of the authority: %v", err)
	}
	a.file = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

// issue makes a key and a certificate for it, and returns their files.
func (a *authority) issue(name string, usage x509.ExtKeyUsage) (certFile, keyFile string) {
	a.t.Helper()
	template := a.template(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatalf("certificate of the %s: %v", name, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatalf("key of the %s: %v", name, err)
	}
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", private)
}

// template is valid around now: no test takes an hour, and no clock is off by one.
func (a *authority) template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "redistest " + name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatalf("make a key: %v", err)
	}
	return key
}

// write puts a PEM block into a file of its own and returns the path.
func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}
