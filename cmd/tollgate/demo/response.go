package demo

// completion is an answer, whole or a chunk of a stream, in OpenAI's shape.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	// Usage is a *usage. Nil leaves the key out; a nil *usage is null, as in the chunks before the last of a stream whose
	// caller asked for usage.
	Usage any `json:"usage,omitzero"`
}

type choice struct {
	Index        int     `json:"index"`
	Message      *text   `json:"message,omitzero"`
	Delta        *text   `json:"delta,omitzero"`
	Logprobs     *bool   `json:"logprobs"`
	FinishReason *string `json:"finish_reason"`
}

type text struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitzero"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

type modelList struct {
	Object string  `json:"object"`
	Data   []model `json:"data"`
}

type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// newUsage is the usage of a request answered with tokens tokens in each choice.
func newUsage(q *request, tokens int) *usage {
	prompt, completed := q.prompt(), tokens*q.choices()
	return &usage{PromptTokens: prompt, CompletionTokens: completed, TotalTokens: prompt + completed}
}
