package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// certificate makes a certificate and its key, in PEM.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key = string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
	return cert, key
}

func sha(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	_, otherKey := certificate(t)
	const file = "tls: {cert: env:CERT, key: env:KEY}\n"
	for _, test := range []struct {
		name, cert, key, want string
	}{
		{"fits", cert, key, ""},
		{"key of another certificate", cert, otherKey, "t.yaml:1: tls: cert and key do not fit"},
		{"swapped", key, cert, "t.yaml:1: tls.cert: must be PEM with a CERTIFICATE"},
		{"no PEM", "x", key, "t.yaml:1: tls.cert: must be PEM with a CERTIFICATE"},
		{"empty", "", key, "t.yaml:1: tls.cert: must be PEM with a CERTIFICATE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadText(file, map[string]string{"CERT": test.cert, "KEY": test.key})
			switch {
			case test.want == "" && err == nil:
				if c.TLS.Cert != cert || c.TLS.Key != key || c.TLS.ClientCA != "" {
					t.Errorf("TLS = %+v", c.TLS)
				}
			case err == nil || test.want == "" || !strings.HasPrefix(err.Error(), test.want):
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
