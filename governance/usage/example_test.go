package usage_test

import (
	"fmt"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

func ExampleParseChat() {
	body := []byte(`{"model":"mini", "messages":[{"role":"user","content":"Name a river."}], "stream":true, "user":"ada"}`)
	request, err := usage.ParseChat(body, usage.Sources{EndUser: []string{"safety_identifier", "user"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(request.Model, request.EndUser, request.InputTokens)
	fmt.Println(string(request.Apply(body, usage.Edits{Model: "gpt-4o-mini", IncludeUsage: true, OutputCap: 1024})))
	// Output:
	// mini ada 10
	// {"model":"gpt-4o-mini", "messages":[{"role":"user","content":"Name a river."}], "stream":true, "user":"ada","stream_options":{"include_usage":true},"max_completion_tokens":1024}
}

func ExampleMalformedError() {
	_, err := usage.ParseChat([]byte(`{"model":"cheap","messages":[],"max_tokens":"512"}`), usage.Sources{})
	fmt.Println(err)
	_, err = usage.ParseChat([]byte(`{"model":"cheap","messages":[],"model":"dear"}`), usage.Sources{})
	fmt.Println(err)
	// Output:
	// max_tokens must be an integer
	// the body is ambiguous: a name appears twice in one object, at byte 31
}

// The client did not ask for the usage chunk: it is read, and not passed on.
func ExampleReader() {
	reader := usage.NewReader("text/event-stream", usage.ReaderOptions{StripUsage: true})
	for _, piece := range []string{
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"The Oder.\"},\"finish_reason\":\"stop\"}]}\n\n",
		"data: {\"choices\":[],\"usage\":{\"prompt_",
		"tokens\":12,\"completion_tokens\":3,\"total_tokens\":15}}\n\ndata: [DONE]\n\n",
	} {
		fmt.Printf("%s", reader.Write([]byte(piece)))
	}
	fmt.Printf("%s", reader.Close())
	result := reader.Result()
	fmt.Println(result.Usage.Input, result.Usage.Output, result.OutputBytes, result.Complete)
	// Output:
	// data: {"choices":[{"index":0,"delta":{"content":"The Oder."},"finish_reason":"stop"}]}
	//
	// data: [DONE]
	//
	// 12 3 9 true
}

func ExampleFindEndpoint() {
	fmt.Printf("%+v\n", usage.FindEndpoint("POST", "//v1/chat/completions?trace=1"))
	fmt.Printf("%+v\n", usage.FindEndpoint("POST", "/v1/messages"))
	// Output:
	// {Name:chat Object: Dialect:openai Governed:true}
	// {Name: Object: Dialect:anthropic Governed:false}
}
