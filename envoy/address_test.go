package envoy

import (
	"strings"
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, url, host string
		port            uint32
		tls             bool
		err             string
	}{
		{name: "https", url: "https://api.openai.com/v1", host: "api.openai.com", port: 443, tls: true},
		{name: "http with a port", url: "http://localhost:8000", host: "localhost", port: 8000},
		{name: "IPv6", url: "http://[::1]/v1", host: "::1", port: 80},
		{name: "a service with an underscore", url: "http://my_vllm:80", host: "my_vllm", port: 80},
		{name: "upper case scheme", url: "HTTPS://a", host: "a", port: 443, tls: true},
		{name: "no scheme", url: "api.openai.com", err: "scheme"},
		{name: "no host", url: "https:///v1", err: "no host"},
		{name: "port 0", url: "https://a:0", err: "port 0"},
		{name: "port too large", url: "https://a:65536", err: "65536"},
		{name: "user", url: "https://u@a", err: "credential"},
		{name: "blank in the host", url: "https://a%20b", err: "not a URL"},
		{name: "control character", url: "https://a\x00b", err: "not a URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, err := parseEndpoint(tt.url)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %+v, error %v, want an error with %q", e, err, tt.err)
				}
				return
			}
			if err != nil || e.host != tt.host || e.port != tt.port || e.tls != tt.tls {
				t.Errorf("got %+v, error %v", e, err)
			}
		})
	}
}

// FuzzParseEndpoint wants an accepted URL to be something Envoy can connect to.
func FuzzParseEndpoint(f *testing.F) {
	for _, seed := range []string{"https://api.openai.com/v1", "http://[::1]:80", "http://a:0", "https://u:p@h", "ftp://x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		e, err := parseEndpoint(raw)
		if err != nil {
			return
		}
		if e.host == "" || e.port == 0 || e.port > 65535 {
			t.Errorf("%q is accepted as %+v", raw, e)
		}
		if err := socketAddress(e.host, e.port).ValidateAll(); err != nil {
			t.Errorf("%q: envoy refuses %+v: %v", raw, e, err)
		}
	})
}

// FuzzParseAddress wants an accepted address to be valid for Envoy.
func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"127.0.0.1:9901", "unix:/run/tollgate.sock", "[::1]:80", ":80", "unix:", "a:b:c", "x:-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string) error{
			func(s string) error { a, err := parseAddress(s); return firstError(err, a.ValidateAll) },
			func(s string) error { a, err := bindAddress(s); return firstError(err, a.ValidateAll) },
		} {
			if err := parse(s); err != nil {
				t.Errorf("%q is accepted and envoy refuses it: %v", s, err)
			}
		}
	})
}

// firstError validates what was accepted.
func firstError(err error, validate func() error) error {
	if err != nil {
		return nil // refused, which is fine
	}
	return validate()
}
