package envoy

import (
	"cmp"
	"os"
)

// Options are the choices about the gateway that are Envoy's and not the configuration file's. The zero value is
// ready to use.
type Options struct {
	// AccessLog is the file Envoy writes a JSON line to for each request ("/dev/stdout" works); "" writes none. The
	// line holds no header that carries a credential and no query string: Gemini clients put their key there.
	AccessLog string
	// CAFile is the bundle of certificate authorities for https deployments, a path on Envoy's machine; "" takes the
	// first of the usual places that exists here.
	CAFile string
}

// systemBundles are where distributions keep the CA bundle; the first is that of the official Envoy image.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, the Envoy image
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL
	"/etc/ssl/ca-bundle.pem",             // SUSE
	"/etc/ssl/cert.pem",                  // Alpine, macOS
}

// caFile is the bundle to verify https deployments with. Where no usual place exists, a static bootstrap is being
// made for another machine, and the Envoy image's place is the best guess.
func (o Options) caFile() string {
	if o.CAFile != "" {
		return o.CAFile
	}
	if path := os.Getenv("SSL_CERT_FILE"); path != "" {
		return path // as crypto/x509 does
	}
	for _, path := range systemBundles {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return cmp.Or(systemBundles...)
}
