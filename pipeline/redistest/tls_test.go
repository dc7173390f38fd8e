package redistest_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

func TestStartTLS(t *testing.T) {
	t.Parallel()
	open := redistest.StartTLS(t)
	closed := redistest.StartTLS(t, "--tls-auth-clients", "yes")
	other := redistest.StartTLS(t)
	tests := []struct {
		name   string
		server *redistest.TLSServer
		ca     string
		// owner is whose client certificate is shown, nil for none.
		owner *redistest.TLSServer
		fails bool
	}{
		{name: "no certificate asked for, none shown", server: open, ca: open.CAFile},
		{name: "no certificate asked for, one shown", server: open, ca: open.CAFile, owner: open},
		{name: "certificate asked for, none shown", server: closed, ca: closed.CAFile, fails: true},
		{name: "certificate asked for, one shown", server: closed, ca: closed.CAFile, owner: closed},
		{name: "certificate of another authority", server: closed, ca: closed.CAFile, owner: other, fails: true},
		{name: "server of another authority", server: open, ca: other.CAFile, fails: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			options, err := redis.ParseURL(test.server.URL())
			if err != nil {
				t.Fatal(err)
			}
			if options.TLSConfig == nil || options.TLSConfig.ServerName != "127.0.0.1" {
				t.Fatalf("%s: TLS is %+v", test.server.URL(), options.TLSConfig)
			}
			pem, err := os.ReadFile(test.ca)
			if err != nil {
				t.Fatal(err)
			}
			options.TLSConfig.RootCAs = x509.NewCertPool()
			options.TLSConfig.RootCAs.AppendCertsFromPEM(pem)
			if test.owner != nil {
				pair, err := tls.LoadX509KeyPair(test.owner.CertFile, test.owner.KeyFile)
				if err != nil {
					t.Fatal(err)
				}
				options.TLSConfig.Certificates = []tls.Certificate{pair}
			}
			options.MaxRetries = -1
			c := redis.NewClient(options)
			defer c.Close()
			if err := c.Set(t.Context(), "k", "v", 0).Err(); (err != nil) != test.fails {
				t.Errorf("SET: error is %v, want one: %v", err, test.fails)
			}
		})
	}
	set(t, closed.Client(), "k", "v")
	if err := client(t, open.Addr()).Ping(t.Context()).Err(); err == nil {
		t.Error("the TLS port answers without TLS")
	}
}
