package identity_test

import (
	"fmt"
	"net/http"

	"github.com/tollgate-proxy/tollgate/governance/identity"
)

// clientHeaders gives http.Header the lower-case names that Envoy uses.
type clientHeaders http.Header

func (h clientHeaders) Values(name string) []string { return http.Header(h).Values(name) }

func ExampleFindCredential() {
	h := http.Header{}
	h.Set("Authorization", "bearer  sk-test-a ")
	c, refused := identity.FindCredential(clientHeaders(h), identity.Rules{})
	fmt.Printf("%v %s %x\n", refused, c.Header, c.Sum[:4])
	// Output: <nil> authorization 11acf871
}
