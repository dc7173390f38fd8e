package llamatest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"testing"
	"time"
)

// clientTimeout bounds all calls of one OpenAIClient together.
const clientTimeout = 3 * time.Minute

//go:embed testdata/client.py
var clientScript string

// Call is one chat completion with a single user message.
type Call struct {
	Model  string `json:"model"`
	Prompt string `json:"prompt"`
	// MaxTokens is sent as max_tokens; 0 sends none.
	MaxTokens int  `json:"max_tokens"`
	Stream    bool `json:"stream"`
	// IncludeUsage asks a stream for its usage.
	IncludeUsage bool              `json:"include_usage"`
	Headers      map[string]string `json:"headers"`
}

// Result is what the client made of the answer to a Call.
type Result struct {
	ID           string `json:"id"`
	Model        string `json:"model"`
	Text         string `json:"text"`
	FinishReason string `json:"finish_reason"`
	// Chunks is the number of events of a stream, [DONE] not counted; 0 without a stream.
	Chunks int `json:"chunks"`
	// Usage is nil when the answer has none.
	Usage *Usage `json:"usage"`
	// Headers are the response headers, names in lower case; empty when no response came.
	Headers map[string]string `json:"headers"`
	// Error is nil when the client raised none. A stream may have both text and an error.
	Error *Error `json:"error"`
}

// Usage is the usage as the client parsed it. The prompt includes what was cached, the completion the reasoning.
type Usage struct {
	PromptTokens        int64 `json:"prompt_tokens"`
	CompletionTokens    int64 `json:"completion_tokens"`
	TotalTokens         int64 `json:"total_tokens"`
	PromptTokensDetails *struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// Error is an exception of the client.
type Error struct {
	// Class is the exception's, such as RateLimitError or APIConnectionError.
	Class string `json:"class"`
	// Status is the HTTP status; 0 when no response came, or the error was inside a stream.
	Status  int    `json:"status"`
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    string `json:"code"`
	// Body is the error object as JSON.
	Body string `json:"body"`
}

// OpenAIClient makes the calls one after the other with one official OpenAI client, without retries, and returns a result
// for each. BaseURL ends in the version, such as http://127.0.0.1:8080/v1. What goes wrong in a call is in its result; the
// test fails only when the client cannot run.
func OpenAIClient(t testing.TB, baseURL, key string, calls ...Call) []Result {
	t.Helper()
	for i := range calls {
		if calls[i].Headers == nil {
			calls[i].Headers = map[string]string{}
		}
	}
	order, err := json.Marshal(map[string]any{"base_url": baseURL, "api_key": key, "calls": calls})
	if err != nil {
		t.Fatalf("write the calls: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
	defer cancel()
	client := python(ctx, t, clientScript)
	var out, log bytes.Buffer
	client.Stdin, client.Stdout, client.Stderr = bytes.NewReader(order), &out, &log
	if err := client.Run(); err != nil {
		t.Fatalf("run the OpenAI client: %v\n%s", err, &log)
	}
	var results []Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil || len(results) != len(calls) {
		t.Fatalf("the OpenAI client answered %s: %v", &out, err)
	}
	return results
}
