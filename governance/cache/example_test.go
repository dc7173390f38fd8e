package cache_test

import (
	"fmt"
	"strings"

	"github.com/tollgate-proxy/tollgate/governance/cache"
)

// A stream is collected as it passes, and the entry then serves a caller without stream.
func ExampleCollector() {
	c := cache.NewCollector("chat", "text/event-stream", 1<<20)
	for _, piece := range []string{
		`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}` + "\n\n",
		`data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}` + "\n\ndata: [DO",
		"NE]\n\n",
	} {
		c.Write([]byte(piece))
	}
	contentType, body, err := c.Finish()
	fmt.Println(contentType, err)
	fmt.Println(string(body))
	// Output:
	// application/json <nil>
	// {"choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"object":"chat.completion"}
}

// Requests that differ only in framing and spelling share an answer.
func ExampleKeyOf() {
	plain := cache.Request{Endpoint: "chat", Model: "gpt-4o-mini", ScopeID: "team:search",
		Body: []byte(`{"model":"mini","temperature":1,"messages":[]}`)}
	streaming := plain
	streaming.Body = []byte(`{"model":"gpt-4o-mini","messages":[],"stream":true,"temperature":1.0}`)
	a, err := cache.KeyOf(plain)
	if err != nil {
		fmt.Println(err)
	}
	b, err := cache.KeyOf(streaming)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(a == b, strings.HasPrefix(a.Redis("tg"), "tg:c:"))
	// Output: true true
}
