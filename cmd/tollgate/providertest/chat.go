package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// defaultCompletion is how many tokens an answer without a cap has.
const defaultCompletion = 16

// Chat scripts an OpenAI chat provider that uses all it may: the completion has as many tokens as the request's
// max_completion_tokens or max_tokens, each of its n choices, unless u names a number; the rest of the usage is u's. A request
// with "stream": true is answered with events, and with usage in the last when stream_options.include_usage asks for it.
func Chat(u Usage) func(Hit) Reply {
	return func(hit Hit) Reply {
		var q chatRequest
		if err := json.Unmarshal(hit.Body, &q); err != nil {
			return JSON(http.StatusBadRequest, `{"error":{"message":"body is no JSON","type":"invalid_request_error","param":null,"code":null}}`)
		}
		used := u
		if used.Completion == 0 {
			used.Completion = q.completion()
		}
		if q.Stream {
			return streamed(q, used)
		}
		reply := JSON(http.StatusOK, fmt.Sprintf(
			`{"id":"chatcmpl-test","object":"chat.completion","created":1700000000,"model":%s,`+
				`"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"logprobs":null,"finish_reason":"stop"}],"usage":%s}`,
			quote(q.Model), usageJSON(used)))
		reply.Usage = used
		return reply
	}
}

// chatRequest is what Chat reads of a request.
type chatRequest struct {
	Model               string `json:"model"`
	MaxTokens           int    `json:"max_tokens"`
	MaxCompletionTokens int    `json:"max_completion_tokens"`
	N                   int    `json:"n"`
	Stream              bool   `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// completion is the number of tokens that the request allows at most.
func (q chatRequest) completion() int {
	limit := q.MaxCompletionTokens
	if limit <= 0 {
		limit = q.MaxTokens
	}
	if limit <= 0 {
		limit = defaultCompletion
	}
	return limit * max(q.N, 1)
}

// streamed answers with events. Usage that nobody asked for is used all the same: the book has it.
func streamed(q chatRequest, used Usage) Reply {
	head := `{"id":"chatcmpl-test","object":"chat.completion.chunk","created":1700000000,"model":` + quote(q.Model)
	usage := ""
	if q.StreamOptions.IncludeUsage {
		usage = `,"usage":null`
	}
	choice := func(delta, finish string) string {
		return fmt.Sprintf(`data: %s,"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]%s}`, head, delta, finish, usage)
	}
	events := []string{
		choice(`{"role":"assistant","content":""}`, "null"),
		choice(`{"content":"o"}`, "null"),
		choice(`{"content":"k"}`, "null"),
		choice(`{}`, `"stop"`),
	}
	if q.StreamOptions.IncludeUsage {
		events = append(events, fmt.Sprintf(`data: %s,"choices":[],"usage":%s}`, head, usageJSON(used)))
	}
	reply := SSE(append(events, "data: [DONE]")...)
	reply.Usage = used
	return reply
}

// usageJSON is usage in OpenAI's shape, the details only when there are any.
func usageJSON(u Usage) string {
	details := ""
	if u.Cached > 0 {
		details += fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%d}`, u.Cached)
	}
	if u.Reasoning > 0 {
		details += fmt.Sprintf(`,"completion_tokens_details":{"reasoning_tokens":%d}`, u.Reasoning)
	}
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d%s}`,
		u.Prompt, u.Completion, u.Prompt+u.Completion, details)
}

// quote is a string in JSON.
func quote(s string) string {
	// A string always has a JSON form.
	encoded, _ := json.Marshal(s)
	return string(encoded)
}
