package redistest

import (
	"testing"

	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// Proxy counts the round trips to a Redis and injects faults.
type Proxy = tripcount.Proxy

// NewProxy starts a proxy that passes connections on to upstream, a host:port or unix:/path of a Redis, until the test
// ends.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p, err := tripcount.New(upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
