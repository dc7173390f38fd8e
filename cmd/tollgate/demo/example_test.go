package demo_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/demo"
)

func ExampleNew() {
	server := httptest.NewServer(demo.New(demo.Options{ChunkDelay: -1}))
	defer server.Close()
	answer, err := http.Post(server.URL+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model": "demo", "messages": []}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	fmt.Println(answer.StatusCode, string(body), err)
	// Output:
	// 400 {"error":{"message":"messages must have at least one item","type":"invalid_request_error","param":"messages","code":null}} <nil>
}

func ExampleCountTokens() {
	fmt.Println(demo.CountTokens("How many tokens does governance have?"))
	// Output: 7
}
