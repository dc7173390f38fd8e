package cache

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	goodChat      = `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`
	goodMessage   = `{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}`
	goodResponse  = `{"object":"response","status":"completed","error":null,"output":[{"type":"message"}]}`
	messageStart  = `{"type":"message_start","message":{"content":[],"stop_reason":null}}`
	contentStart  = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	messageDelta  = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`
	messagePaused = `{"type":"message_delta","delta":{"stop_reason":"pause_turn"}}`
	messageStop   = `{"type":"message_stop"}`
)

// collect puts an answer through a collector in pieces of seven bytes.
func collect(endpoint, contentType string, body []byte, maxEntry int64) (string, []byte, error) {
	c := NewCollector(endpoint, contentType, maxEntry)
	for len(body) > 0 {
		n := min(7, len(body))
		c.Write(body[:n])
		body = body[n:]
	}
	return c.Finish()
}

func TestCollector(t *testing.T) {
	t.Parallel()
	stream := sse(delta(`{"content":"Hel"}`), delta(`{"content":"lo"}`), stop, "[DONE]")
	message := sse(messageStart, `{"type":"ping"}`, contentStart, messageDelta, messageStop)
	response := sse(`{"type":"response.created","response":{"status":"in_progress","error":null}}`, `{"type":"response.completed","response":`+goodResponse+`}`)
	for _, tt := range []struct {
		name, endpoint, contentType string
		in                          []byte
		wantType, want              string
	}{
		{"chat", "chat", "application/json", []byte(goodChat), contentJSON, goodChat},
		{"chat with a charset", "chat", "Application/JSON; charset=utf-8", []byte(goodChat), contentJSON, goodChat},
		{"chat behind blank lines", "chat", "application/json", []byte("\n\n" + goodChat), contentJSON, "\n\n" + goodChat},
		{"a chat stream is assembled", "chat", "text/event-stream; charset=utf-8", stream, contentJSON,
			`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"content":"Hello","role":"assistant"},"finish_reason":"stop"}]}`},
		{"completions", "completions", "application/json", []byte(`{"choices":[{"text":"x","finish_reason":"length"}]}`), contentJSON, `{"choices":[{"text":"x","finish_reason":"length"}]}`},
		{"embeddings", "embeddings", "application/json", []byte(`{"data":[{"embedding":[1]}]}`), contentJSON, `{"data":[{"embedding":[1]}]}`},
		{"message", "messages", "application/json", []byte(goodMessage), contentJSON, goodMessage},
		{"message stream as it came", "messages", "text/event-stream", message, contentSSE, string(message)},
		{"response", "responses", "application/json", []byte(goodResponse), contentJSON, goodResponse},
		{"response stream as it came", "responses", "text/event-stream", response, contentSSE, string(response)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			gotType, got, err := collect(tt.endpoint, tt.contentType, tt.in, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if gotType != tt.wantType {
				t.Errorf("content type %q, want %q", gotType, tt.wantType)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCollectorRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, endpoint, contentType string
		in                          []byte
		want                        string
	}{
		{"nothing", "chat", "application/json", nil, ""},
		{"truncated", "chat", "application/json", []byte(goodChat[:40]), ""},
		{"no object", "chat", "application/json", []byte(`[1]`), "not a JSON object"},
		{"an error with status 200", "chat", "application/json", []byte(`{"error":{"message":"x"},"choices":[]}`), "an error"},
		{"no choices", "chat", "application/json", []byte(`{"choices":[]}`), "no choices"},
		{"choices that are no list", "chat", "application/json", []byte(`{"choices":{"a":1}}`), "no choices"},
		{"a choice without a message", "chat", "application/json", []byte(`{"choices":[{"finish_reason":"stop"}]}`), "empty choice"},
		{"a filtered choice", "chat", "application/json", []byte(strings.Replace(goodChat, `"stop"`, `"content_filter"`, 1)), "broken off"},
		{"empty text", "completions", "application/json", []byte(`{"choices":[{"text":"","finish_reason":"stop"}]}`), "empty choice"},
		{"a stream of text completions", "completions", "text/event-stream", sse("[DONE]"), "a stream of completions"},
		{"no embeddings", "embeddings", "application/json", []byte(`{"data":[]}`), "no embeddings"},
		{"another endpoint", "images", "application/json", []byte(`{"data":[1]}`), "endpoint images"},
		{"another content type", "chat", "text/plain", []byte(goodChat), "content type text/plain"},
		{"no content type", "chat", "", []byte(goodChat), "content type"},
		{"an error of Anthropic", "messages", "application/json", []byte(`{"type":"error","error":{}}`), "an error"},
		{"another type", "messages", "application/json", []byte(`{"type":"batch"}`), "not a message"},
		{"a paused message", "messages", "application/json", []byte(strings.Replace(goodMessage, "end_turn", "pause_turn", 1)), "without an end"},
		{"an empty message", "messages", "application/json", []byte(`{"type":"message","content":[],"stop_reason":"end_turn"}`), "empty message"},
		{"a message stream without its end", "messages", "text/event-stream", sse(messageStart, contentStart, messageDelta), "incomplete"},
		{"a paused message stream", "messages", "text/event-stream", sse(messageStart, contentStart, messagePaused, messageStop), "incomplete"},
		{"an empty message stream", "messages", "text/event-stream", sse(messageStart, messageDelta, messageStop), "empty stream"},
		{"an error in a message stream", "messages", "text/event-stream", sse(messageStart, contentStart, `{"type":"error","error":{"type":"overloaded_error"}}`), "reports an error"},
		{"data after message_stop", "messages", "text/event-stream", sse(messageStart, contentStart, messageStop, messageStop), "after the end"},
		{"an event without a type", "messages", "text/event-stream", sse(`{"a":1}`), "without a type"},
		{"a response in progress", "responses", "application/json", []byte(`{"status":"queued","output":[]}`), "not completed"},
		{"an empty response", "responses", "application/json", []byte(`{"status":"completed","output":[]}`), "empty response"},
		{"a response stream that failed", "responses", "text/event-stream", sse(`{"type":"response.failed","response":{}}`), "not completed"},
		{"a response stream that ended early", "responses", "text/event-stream", sse(`{"type":"response.incomplete","response":{}}`), "not completed"},
		{"a response stream cut off", "responses", "text/event-stream", sse(`{"type":"response.created"}`), "incomplete"},
		{"a completed response without its answer", "responses", "text/event-stream", sse(`{"type":"response.completed"}`), "not completed"},
		{"a chat stream cut off", "chat", "text/event-stream", sse(delta(`{"content":"a"}`)), "incomplete"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			contentType, body, err := collect(tt.endpoint, tt.contentType, tt.in, 1<<20)
			if err == nil || !errors.Is(err, ErrNotStorable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if contentType != "" || body != nil {
				t.Errorf("beside the error: %q, %s", contentType, body)
			}
		})
	}
}

func TestCollectorIsBounded(t *testing.T) {
	t.Parallel()
	piece := delta(`{"content":"` + strings.Repeat("x", 100) + `"}`)
	many := make([]string, 100)
	for i := range many {
		many[i] = piece
	}
	long := append(many, stop, "[DONE]")
	for _, tt := range []struct {
		name, endpoint, contentType string
		in                          []byte
		max                         int64
		kept                        bool
	}{
		{"JSON of the bound", "chat", "application/json", []byte(goodChat), int64(len(goodChat)), true},
		{"JSON a byte larger", "chat", "application/json", []byte(goodChat), int64(len(goodChat)) - 1, false},
		{"a stream counts assembled", "chat", "text/event-stream", sse(long...), 11000, true},
		{"a stream that is larger assembled", "chat", "text/event-stream", sse(long...), 9000, false},
		{"an event without an end", "chat", "text/event-stream", bytes.Repeat([]byte("data: x"), 10000), 1000, false},
		{"a message stream counts as it comes", "messages", "text/event-stream", sse(messageStart, contentStart, messageDelta, messageStop), 100, false},
		{"nothing fits in nothing", "chat", "application/json", []byte(goodChat), 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := collect(tt.endpoint, tt.contentType, tt.in, tt.max)
			if (err == nil) != tt.kept {
				t.Errorf("error %v, should be kept: %v", err, tt.kept)
			}
		})
	}
}

func TestCollectorLetsGo(t *testing.T) {
	c := NewCollector("chat", "text/event-stream", 1000)
	c.Write(sse(delta(`{"content":"` + strings.Repeat("x", 900) + `"}`)))
	c.Write(sse(delta(`{"content":"` + strings.Repeat("x", 900) + `"}`)))
	if c.assembler != nil || c.body != nil || c.events.line != nil {
		t.Error("an answer that is too large is still held")
	}
	piece := []byte("data: {}\n\n")
	allocs := testing.AllocsPerRun(10, func() { c.Write(piece) })
	if allocs != 0 {
		t.Errorf("%v allocations for a piece of an answer that is not kept", allocs)
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	entry := func(contentType, body string) Entry { return Entry{ContentType: contentType, Body: []byte(body)} }
	message := string(sse(messageStart, contentStart, messageDelta, messageStop))
	streamed, err := Stream([]byte(goodChat), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, endpoint string
		in             Entry
		want           Framing
		contentType    string // "" is a miss
		body           string
	}{
		{"chat as JSON", "chat", entry(contentJSON, goodChat), Framing{}, contentJSON, goodChat},
		{"chat as a stream", "chat", entry(contentJSON, goodChat), Framing{Stream: true}, contentSSE, string(streamed)},
		{"chat that has no stream", "chat", entry(contentJSON, `{"choices":[{"index":3}]}`), Framing{Stream: true}, "", ""},
		{"message as JSON", "messages", entry(contentJSON, goodMessage), Framing{}, contentJSON, goodMessage},
		{"message as the stream it was", "messages", entry(contentSSE, message), Framing{Stream: true}, contentSSE, message},
		{"message as a stream it was not", "messages", entry(contentJSON, goodMessage), Framing{Stream: true}, "", ""},
		{"message stream as JSON", "messages", entry(contentSSE, message), Framing{}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			contentType, body, err := tt.in.Replay(tt.endpoint, tt.want)
			if miss := tt.contentType == ""; miss != errors.Is(err, ErrFraming) {
				t.Fatalf("error %v, should be a miss: %v", err, miss)
			}
			if contentType != tt.contentType || string(body) != tt.body {
				t.Errorf("%q %s, want %q %s", contentType, body, tt.contentType, tt.body)
			}
		})
	}
}
