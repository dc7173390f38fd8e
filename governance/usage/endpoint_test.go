package usage

import "testing"

func TestFindEndpoint(t *testing.T) {
	t.Parallel()
	chat := Endpoint{Name: "chat", Dialect: OpenAI, Governed: true}
	models := Endpoint{Name: "models", Dialect: OpenAI, Governed: true}
	model := func(id string) Endpoint {
		return Endpoint{Name: "models", Object: id, Dialect: OpenAI, Governed: true}
	}
	for _, tt := range []struct {
		name, method, path string
		want               Endpoint
	}{
		{"chat", "POST", "/v1/chat/completions", chat},
		{"query", "POST", "/v1/chat/completions?x=/v1/models", chat},
		{"doubled slashes", "POST", "//v1///chat//completions", chat},
		{"models", "GET", "/v1/models", models},
		{"one model", "GET", "/v1/models/gpt-4o", model("gpt-4o")},
		{"one model with a slash", "GET", "/v1/models/openai/gpt-4o?x=1", model("openai/gpt-4o")},
		{"a model without a name", "GET", "/v1/models/", Endpoint{Dialect: OpenAI}},
		{"method", "GET", "/v1/chat/completions", Endpoint{Dialect: OpenAI}},
		{"method in lower case", "post", "/v1/chat/completions", Endpoint{Dialect: OpenAI}},
		{"path in upper case", "POST", "/V1/chat/completions", Endpoint{Dialect: OpenAI}},
		{"stored completion", "POST", "/v1/chat/completions/chatcmpl-1", Endpoint{Dialect: OpenAI}},
		{"trailing slash", "POST", "/v1/chat/completions/", Endpoint{Dialect: OpenAI}},
		{"escaped", "POST", "/v1/%63hat/completions", Endpoint{Dialect: OpenAI}},
		{"dots", "POST", "/v1/../v1/chat/completions", Endpoint{Dialect: OpenAI}},
		{"prefix", "POST", "/x/v1/chat/completions", Endpoint{Dialect: OpenAI}},
		{"messages", "POST", "/v1/messages?beta=true", Endpoint{Dialect: Anthropic}},
		{"count tokens", "POST", "/v1/messages/count_tokens", Endpoint{Dialect: Anthropic}},
		{"gemini", "POST", "/v1beta/models/gemini-3:generateContent", Endpoint{Dialect: Gemini}},
		{"bedrock", "POST", "/model/us.own.model-v1%3A0/converse", Endpoint{Dialect: Bedrock}},
		{"azure", "POST", "//openai/deployments/d/chat/completions?api-version=1", Endpoint{Dialect: Azure}},
		{"azure v1", "POST", "/openai/v1/chat/completions", Endpoint{Dialect: OpenAI}},
		{"empty", "", "", Endpoint{Dialect: OpenAI}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := FindEndpoint(tt.method, tt.path); got != tt.want {
				t.Errorf("FindEndpoint(%q, %q) = %+v, want %+v", tt.method, tt.path, got, tt.want)
			}
		})
	}
}

func TestFindEndpointDoesNotAllocate(t *testing.T) {
	allocs := testing.AllocsPerRun(100, func() { FindEndpoint("POST", "/v1/chat/completions?a=b") })
	if allocs != 0 {
		t.Errorf("allocations = %v, want 0", allocs)
	}
}
