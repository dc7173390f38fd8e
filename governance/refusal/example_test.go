package refusal_test

import (
	"fmt"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/refusal"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// A limit fills in the facts; words, status and headers follow from them.
func ExampleRefusal_Render() {
	r := &refusal.Refusal{
		Reason: refusal.RPM, ScopeKind: "key", ScopeID: "search-ci", Limit: "rpm", Unit: "requests",
		Amount: 60, Spent: 60, RetryAfter: 2400 * time.Millisecond,
	}
	resp := r.Render(usage.Anthropic, "req_1", refusal.Options{})
	fmt.Println(resp.Status)
	fmt.Println(string(resp.Body))
	// Output:
	// 429
	// {"type":"error","error":{"type":"rate_limit_error","message":"key \"search-ci\" may use 60 requests per minute and has used 60; try again in 3 s","tollgate":{"scope":"key","id":"search-ci","limit":"rpm","unit":"requests","amount":60,"spent":60,"reserved":0,"estimate":0,"request_id":"req_1"}},"request_id":"req_1"}
}
