package llamatest_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/llamatest"
	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
)

// body is what an answer and the last event of a stream have in common.
type body struct {
	Choices []struct {
		Message struct{ Content string }
		Delta   struct{ Content *string }
	}
	Usage *llamatest.Usage
}

// events decodes the events of a recorded stream.
func events(t *testing.T, stream []byte) []body {
	t.Helper()
	var all []body
	for event := range bytes.SplitSeq(stream, []byte("\n\n")) {
		data, ok := bytes.CutPrefix(event, []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		var decoded body
		if err := json.Unmarshal(data, &decoded); err != nil {
			t.Fatalf("event %s: %v", data, err)
		}
		all = append(all, decoded)
	}
	return all
}

// TestClientAndServer runs client -> recorder -> llama.cpp: what the client has parsed is what the recorder saw pass.
func TestClientAndServer(t *testing.T) {
	t.Parallel()
	recorder := providertest.NewRecorder(t, llamatest.Start(t))
	results := llamatest.OpenAIClient(t, recorder.URL()+"/v1", "sk-test",
		llamatest.Call{Model: llamatest.Model, Prompt: "the toll of a gate", MaxTokens: 20, Headers: map[string]string{"x-test": "1"}},
		llamatest.Call{Model: llamatest.Model, Prompt: "count the budget", MaxTokens: 5, Stream: true, IncludeUsage: true},
		llamatest.Call{Model: llamatest.Model, Prompt: "no usage", MaxTokens: 5, Stream: true},
	)
	exchanges := recorder.Exchanges()
	if len(exchanges) != len(results) {
		t.Fatalf("%d exchanges for %d calls: is the client retrying?", len(exchanges), len(results))
	}
	for i, result := range results {
		if result.Error != nil || result.Model != llamatest.Model || result.Text == "" || result.ID == "" {
			t.Errorf("call %d: %+v, error %+v", i, result, result.Error)
		}
		if seen := exchanges[i]; seen.Status != 200 || !seen.Whole || seen.Header.Get("Authorization") != "Bearer sk-test" {
			t.Errorf("exchange %d: status %d, whole %v, header %v", i, seen.Status, seen.Whole, seen.Header)
		}
	}
	if exchanges[0].Header.Get("X-Test") != "1" {
		t.Errorf("headers of the first call are %v, want x-test", exchanges[0].Header)
	}
	checkWhole(t, results[0], exchanges[0].Response)
	checkStream(t, results[1], exchanges[1].Response)
	if results[2].Usage != nil {
		t.Errorf("usage that was not asked for is %+v", results[2].Usage)
	}
}

func checkWhole(t *testing.T, result llamatest.Result, response []byte) {
	t.Helper()
	var seen body
	if err := json.Unmarshal(response, &seen); err != nil {
		t.Fatalf("response %s: %v", response, err)
	}
	if diff := cmp.Diff(seen.Usage, result.Usage); diff != "" || seen.Choices[0].Message.Content != result.Text {
		t.Errorf("text %q, usage (-recorded +client):\n%s\nresponse %s", result.Text, diff, response)
	}
	if u := result.Usage; u == nil || u.PromptTokens == 0 || u.CompletionTokens == 0 || u.CompletionTokens > 20 ||
		u.TotalTokens != u.PromptTokens+u.CompletionTokens || result.Chunks != 0 {
		t.Errorf("usage %+v, %d chunks; want 1 to 20 tokens and no chunks", u, result.Chunks)
	}
	if result.Headers["content-type"] == "" {
		t.Errorf("headers are %v", result.Headers)
	}
}

func checkStream(t *testing.T, result llamatest.Result, response []byte) {
	t.Helper()
	all := events(t, response)
	var text strings.Builder
	for _, event := range all {
		for _, choice := range event.Choices {
			if choice.Delta.Content != nil {
				text.WriteString(*choice.Delta.Content)
			}
		}
	}
	if len(all) != result.Chunks || text.String() != result.Text {
		t.Errorf("%d events with %q were recorded, the client had %d with %q", len(all), &text, result.Chunks, result.Text)
	}
	if diff := cmp.Diff(all[len(all)-1].Usage, result.Usage); diff != "" || result.Usage == nil || result.Usage.CompletionTokens > 5 {
		t.Errorf("usage %+v (-recorded +client):\n%s", result.Usage, diff)
	}
}

func TestClientErrors(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	limited := providertest.JSON(429, `{"error":{"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"}}`)
	limited.Header.Set("Retry-After", "3")
	p.Queue(limited, providertest.Reply{Break: providertest.ResetBeforeHeaders})
	call := llamatest.Call{Model: "m", Prompt: "p"}
	results := llamatest.OpenAIClient(t, p.URL()+"/v1", "k", call, call, call)
	if got := len(p.Hits()); got != 3 {
		t.Errorf("%d hits for 3 calls", got)
	}
	want := &llamatest.Error{
		Class: "RateLimitError", Status: 429, Type: "requests", Code: "rate_limit_exceeded",
		Message: "Error code: 429 - slow down",
		Body:    `{"message": "slow down", "type": "requests", "param": null, "code": "rate_limit_exceeded"}`,
	}
	if diff := cmp.Diff(want, results[0].Error); diff != "" || results[0].Headers["retry-after"] != "3" {
		t.Errorf("headers %v, error (-want +got):\n%s", results[0].Headers, diff)
	}
	if got := results[1].Error; got == nil || got.Class != "APIConnectionError" || got.Status != 0 {
		t.Errorf("error of a reset is %+v", got)
	}
	if results[2].Error != nil || results[2].Text != "ok" {
		t.Errorf("the third call: %+v", results[2])
	}
}
