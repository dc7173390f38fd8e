package cache

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// canonicalJSON makes two documents comparable, numbers exactly as written.
func canonicalJSON(t testing.TB, doc []byte) string {
	t.Helper()
	v := jsontext.Value(doc).Clone()
	if err := v.Format(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(false)); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	return string(v)
}

// sse makes a stream of events.
func sse(data ...string) []byte {
	var b bytes.Buffer
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.Bytes()
}

// delta is a chunk of one choice.
func delta(d string) string {
	return `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]}`
}

// manyMembers are n different members of an object.
func manyMembers(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = `"m` + strconv.Itoa(i) + `":1`
	}
	return strings.Join(members, ",")
}

const stop = `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		in     []byte
		choice string // the one choice of the completion, or the whole completion if it has "object"
	}{
		{"text", sse(delta(`{"role":"assistant","content":""}`), delta(`{"content":"Hel"}`), delta(`{"content":"lo"}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}`},
		{"pieces of one escape each", sse(delta(`{"content":"\"\n"}`), delta(`{"content":"\u00e9\\"}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":"\"\né\\"},"finish_reason":"stop"}`},
		{"refusal", sse(delta(`{"role":"assistant","content":null,"refusal":""}`), delta(`{"refusal":"I "}`), delta(`{"refusal":"won't"}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":null,"refusal":"I won't"},"finish_reason":"stop"}`},
		{"reasoning", sse(delta(`{"role":"assistant","content":null,"reasoning_content":"h"}`), delta(`{"reasoning_content":"m"}`), delta(`{"content":"a"}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":"a","reasoning_content":"hm"},"finish_reason":"stop"}`},
		{"two tool calls, interleaved and out of order", sse(
			delta(`{"role":"assistant","content":null,"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]}`),
			delta(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x"}}]}`),
			delta(`{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]}`),
			delta(`{"tool_calls":[{"index":0,"function":{"arguments":"\":1}"}}]}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[` +
				`{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"stop"}`},
		{"empty id and name after the first", sse(
			delta(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{"}}]}`),
			delta(`{"tool_calls":[{"index":0,"id":"","type":"function","function":{"name":"","arguments":"}"}}]}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}`},
		{"custom tool", sse(
			delta(`{"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"f","input":"x"}}]}`),
			delta(`{"tool_calls":[{"index":0,"custom":{"input":"y"}}]}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"a","type":"custom","custom":{"name":"f","input":"xy"}}]},"finish_reason":"stop"}`},
		{"function_call", sse(delta(`{"function_call":{"name":"f","arguments":"{"}}`), delta(`{"function_call":{"arguments":"}"}}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","function_call":{"name":"f","arguments":"{}"}},"finish_reason":"stop"}`},
		{"audio", sse(delta(`{"audio":{"id":"a","transcript":"H"}}`), delta(`{"audio":{"transcript":"i"}}`), delta(`{"audio":{"data":"AA==","expires_at":5}}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","audio":{"id":"a","transcript":"Hi","data":"AA==","expires_at":5}},"finish_reason":"stop"}`},
		{"annotations are appended", sse(delta(`{"content":"a","annotations":[{"n":1}]}`), delta(`{"annotations":[{"n":2}]}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":"a","annotations":[{"n":1},{"n":2}]},"finish_reason":"stop"}`},
		{"reasoning_details keep their index", sse(
			delta(`{"content":"","reasoning_details":[{"type":"reasoning.text","text":"a","format":"f","index":0}]}`),
			delta(`{"reasoning_details":[{"type":"reasoning.text","text":"b","format":"f","index":0}]}`), delta(`{"content":"x"}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.text","text":"ab","format":"f","index":0}]},"finish_reason":"stop"}`},
		{"logprobs", sse(
			`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a"}],"refusal":null},"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b"}],"refusal":null},"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}`, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":"ab"},"logprobs":{"content":[{"token":"a"},{"token":"b"}],"refusal":null},"finish_reason":"stop"}`},
		{"unknown members of the choice: the last that says something", sse(
			`{"choices":[{"index":0,"delta":{"content":"a"},"stop_reason":null,"filters":{"hate":{"n":0}},"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{},"stop_reason":7,"filters":{"hate":{"n":1},"self_harm":{"n":0}},"finish_reason":"stop"}]}`, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":"a"},"stop_reason":7,"filters":{"hate":{"n":1},"self_harm":{"n":0}},"finish_reason":"stop"}`},
		{"an unknown string of the delta in one piece", sse(delta(`{"content":"a","signature":"xyz"}`), delta(`{"signature":""}`), stop, "[DONE]"),
			`{"index":0,"message":{"role":"assistant","content":"a","signature":"xyz"},"finish_reason":"stop"}`},
		{"usage in every chunk: the last; unknown members of the answer", sse(
			`{"id":"c","created":1,"model":"m","system_fingerprint":null,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":{"total_tokens":1},"obfuscation":"zz"}`,
			`{"id":"c","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":{"total_tokens":2}}`,
			`{"id":"","created":0,"model":"","choices":[],"usage":null,"citations":["u"],"x_groq":{"id":"r"}}`, "[DONE]"),
			`{"id":"c","object":"chat.completion","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"length"}],` +
				`"usage":{"total_tokens":2},"citations":["u"],"x_groq":{"id":"r"}}`},
		{"two choices", sse(
			`{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}`,
			`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`, "[DONE]"),
			`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"},` +
				`{"index":1,"message":{"role":"assistant","content":"b"},"finish_reason":"stop"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Completion(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			want := tt.choice
			if !strings.Contains(want, `"object"`) {
				want = `{"id":"c","object":"chat.completion","choices":[` + want + `]}`
				if !bytes.Contains(tt.in, []byte(`"id":"c"`)) {
					want = strings.Replace(want, `"id":"c",`, "", 1)
				}
			}
			if diff := cmp.Diff(canonicalJSON(t, []byte(want)), canonicalJSON(t, got)); diff != "" {
				t.Errorf("completion (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompletionRefuses(t *testing.T) {
	t.Parallel()
	a := delta(`{"content":"a"}`)
	for _, tt := range []struct {
		name string
		in   []byte
		want string
	}{
		{"nothing", nil, "incomplete"},
		{"no [DONE]", sse(a, stop), "incomplete"},
		{"no finish reason", sse(a, "[DONE]"), "without an end"},
		{"one of two choices unfinished", sse(a, stop, `{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":null}]}`, "[DONE]"), "without an end"},
		{"only [DONE]", sse("[DONE]"), "no choices"},
		{"empty choices", sse(`{"choices":[]}`, "[DONE]"), "no choices"},
		{"empty content", sse(delta(`{"role":"assistant","content":""}`), stop, "[DONE]"), "empty choice"},
		{"error event", sse(a, `{"error":{"message":"x"}}`, "[DONE]"), "reports an error"},
		{"error of Groq", sse(a, `{"choices":[],"x_groq":{"error":"x"}}`, "[DONE]"), "reports an error"},
		{"filtered", sse(a, `{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}`, "[DONE]"), "broken off"},
		{"failed after all", sse(a, `{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`, "[DONE]"), "broken off"},
		{"two ends", sse(a, stop, `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`, "[DONE]"), "two finish reasons"},
		{"data after the end", sse(a, stop, "[DONE]", a), "after [DONE]"},
		{"broken JSON", sse(`{"choices":[`, "[DONE]"), "chunk"},
		{"no object", sse(`[1]`, "[DONE]"), "not a JSON object"},
		{"two objects in an event", sse(`{} {}`, "[DONE]"), "data after"},
		{"a gap in the choices", sse(`{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"stop"}]}`, "[DONE]"), "no choice 0"},
		{"a choice without index", sse(`{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`, "[DONE]"), "no index"},
		{"a negative index", sse(`{"choices":[{"index":-1,"delta":{"content":"x"}}]}`, "[DONE]"), "no index"},
		{"an index as a bomb", sse(`{"choices":[{"index":999999,"delta":{"content":"x"}}]}`, "[DONE]"), "no index"},
		{"choices that are no list", sse(`{"choices":{}}`, "[DONE]"), "no list"},
		{"a delta that is no object", sse(`{"choices":[{"index":0,"delta":"x"}]}`, "[DONE]"), "no object"},
		{"a message", sse(`{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}`, "[DONE]"), "message in a stream"},
		{"another id of a tool call", sse(delta(`{"tool_calls":[{"index":0,"id":"a"}]}`), delta(`{"tool_calls":[{"index":0,"id":"b"}]}`), stop, "[DONE]"), `"id" comes in pieces`},
		{"tool calls without index in two chunks", sse(delta(`{"tool_calls":[{"id":"a"}]}`), delta(`{"tool_calls":[{"id":"b"}]}`), stop, "[DONE]"), `"tool_calls" comes in pieces`},
		{"tool calls numbered from 1", sse(delta(`{"tool_calls":[{"index":1,"id":"a"}]}`), stop, "[DONE]"), "not numbered from 0"},
		{"two tool calls of one index, then more", sse(delta(`{"tool_calls":[{"index":0,"id":"a"},{"index":0,"id":"b"}]}`), delta(`{"tool_calls":[{"index":0,"x":"b"}]}`), stop, "[DONE]"), "two elements"},
		{"an unknown string in two pieces", sse(delta(`{"content":"a","signature":"x"}`), delta(`{"signature":"y"}`), stop, "[DONE]"), `"signature" comes in pieces`},
		{"base64 in two pieces", sse(delta(`{"audio":{"data":"AA=="}}`), delta(`{"audio":{"data":"AA=="}}`), stop, "[DONE]"), `"data" comes in pieces`},
		{"content that turns into parts", sse(a, delta(`{"content":[{"type":"text"}]}`), stop, "[DONE]"), "changes its type"},
		{"parts in two pieces", sse(delta(`{"content":[{"type":"text"}]}`), delta(`{"content":[{"type":"text"}]}`), stop, "[DONE]"), `"content" comes in pieces`},
		{"a number with two values", sse(delta(`{"content":"a","n":1}`), delta(`{"n":2}`), stop, "[DONE]"), "two values"},
		{"an unknown list of the choice in two pieces", sse(
			`{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[1],"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{},"token_ids":[2],"finish_reason":"stop"}]}`, "[DONE]"), `"token_ids" comes in pieces`},
		{"logprobs that change", sse(
			`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[]},"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{},"logprobs":{"content":{}},"finish_reason":"stop"}]}`, "[DONE]"), "changes its type"},
		{"a tool call's index as a bomb", sse(delta(`{"tool_calls":[{"index":0,"id":"a"}]}`), delta(`{"tool_calls":[{"index":5000,"id":"b"}]}`), stop, "[DONE]"), "index is too large"},
		{"an object of very many members", sse(delta(`{"content":"a","x":{`+manyMembers(2000)+`}}`), stop, "[DONE]"), "too many members"},
		{"a chunk of very many members", sse(`{`+manyMembers(2000)+`}`, "[DONE]"), "too many members"},
		{"depth", sse(delta(`{"content":"a","x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`)), "too deeply"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Completion(tt.in)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q; completion %s", err, tt.want, got)
			}
		})
	}
}

// TestStreamsOfServers assembles streams as real servers send them.
func TestStreamsOfServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file    string
		content string // of the message
		usage   string
		err     string
	}{
		{"openai_chat_stream_usage", `"The Oder."`, `{"prompt_tokens":1200,"completion_tokens":340,"total_tokens":1540,"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0,"cache_write_tokens":0},"completion_tokens_details":{"reasoning_tokens":128,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`, ""},
		{"openai_chat_stream_nousage", `"The Oder."`, "", ""},
		{"azure_chat_stream", `"Hi"`, `{"prompt_tokens":11,"completion_tokens":1,"total_tokens":12}`, ""},
		{"deepseek_stream", `"a"`, `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":40},"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36}`, ""},
		{"llamacpp_stream", `"a"`, `{"completion_tokens":3,"prompt_tokens":12,"total_tokens":15}`, ""},
		{"mistral_stream", `"a"`, `{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2}`, ""},
		{"openrouter_stream", `"a"`, `{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"cost":0.00014}`, ""},
		{"sglang_stream", `"a"`, `{"prompt_tokens":30,"total_tokens":50,"completion_tokens":20,"prompt_tokens_details":null,"reasoning_tokens":12}`, ""},
		{"vllm_stream_continuous", `"ab"`, `{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2}`, ""},
		{"usage_on_nonempty_choice_after_finish", `"a"`, `{"prompt_tokens":16111,"completion_tokens":2,"total_tokens":16113,"prompt_tokens_details":{"cached_tokens":15872},"completion_tokens_details":{"reasoning_tokens":0}}`, ""},
		{"groq_stream", "", "", "empty choice"},
		{"openai_chat_stream_cut", "", "", "incomplete"},
		{"openai_chat_stream_error", "", "", "reports an error"},
		{"vllm_stream_error", "", "", "reports an error"},
		{"openai_chat_stream_final_no_blank", "", "", "without an end"},
		{"openai_chat_stream_crlf_multiline", "", "", "no choices"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			in, err := os.ReadFile(filepath.Join("testdata", "streams", tt.file+".sse"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Completion(in)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			root, err := parseNode(got)
			if err != nil {
				t.Fatal(err)
			}
			if content := string(root.get("choices").items[0].get("message").get("content").append(nil)); content != tt.content {
				t.Errorf("content %s, want %s", content, tt.content)
			}
			usage := ""
			if u := root.get("usage"); u != nil {
				usage = string(u.append(nil))
			}
			if usage != tt.usage {
				t.Errorf("usage %s, want %s", usage, tt.usage)
			}
			if !root.get("object").isText("chat.completion") {
				t.Errorf("object is %s", root.get("object").append(nil))
			}
		})
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	const completion = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi",` +
		`"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls","filters":{"n":1}}],` +
		`"usage":{"total_tokens":3},"system_fingerprint":"fp","prompt_filters":[1]}`
	const head = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp",`
	const first = `"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"logprobs":null,"finish_reason":null}]`
	const last = `"choices":[{"index":0,"delta":{},"logprobs":null,"filters":{"n":1},"finish_reason":"tool_calls"}]`
	for _, tt := range []struct {
		name         string
		includeUsage bool
		want         string
	}{
		{"without usage", false, head + `"prompt_filters":[1],` + first + "}\n\n" + head + last + "}\n\ndata: [DONE]\n\n"},
		{"with usage", true, head + `"prompt_filters":[1],` + first + `,"usage":null}` + "\n\n" + head + last + `,"usage":null}` + "\n\n" +
			head + `"choices":[],"usage":{"total_tokens":3}}` + "\n\ndata: [DONE]\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Stream([]byte(completion), tt.includeUsage)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("stream (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStreamRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"no JSON", `{`, "chat completion"},
		{"no choices", `{"choices":[]}`, "no choices"},
		{"unfinished", `{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":null}]}`, "without an end"},
		{"a choice elsewhere than at its index", `{"choices":[{"index":1,"message":{"content":"x"},"finish_reason":"stop"}]}`, "not at its index"},
		{"a tool call elsewhere than at its index", `{"choices":[{"index":0,"message":{"tool_calls":[{"index":1}]},"finish_reason":"stop"}]}`, "not at its index"},
		{"a tool call that is no object", `{"choices":[{"index":0,"message":{"tool_calls":[1]},"finish_reason":"stop"}]}`, "no object"},
		{"a delta", `{"choices":[{"index":0,"delta":{},"message":{"content":"x"},"finish_reason":"stop"}]}`, "has a delta"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Stream([]byte(tt.in), true)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q; stream %s", err, tt.want, got)
			}
		})
	}
}

// TestRoundTrip: a completion that went through a stream and back is the same in every member.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "completions", "*.json"))
	if err != nil || len(files) < 6 {
		t.Fatalf("completions: %d files, %v", len(files), err)
	}
	docs := map[string][]byte{
		"everything at once": []byte(`{"id":"c","object":"chat.completion","created":1795000000,"model":"m","service_tier":"default","system_fingerprint":null,
			"choices":[{"index":0,"message":{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"refusal":null,"annotations":[{"x":1},{"x":2}],
			"reasoning_content":"hm","reasoning_details":[{"index":0,"text":"x"},{"index":0,"text":"y"}],"thinking_blocks":[{"signature":"s"}],
			"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"custom","custom":{"name":"g","input":"x"}}],
			"audio":{"id":"i","data":"AA==","expires_at":1,"transcript":"t"}},
			"logprobs":{"content":[{"token":"a","logprob":-0.1,"bytes":[97],"top_logprobs":[]}],"refusal":null},"finish_reason":"tool_calls","stop_reason":null,"content_filter_results":{"hate":{"filtered":false}}},
			{"index":1,"message":{"role":"assistant","content":"b","function_call":{"name":"f","arguments":""},"tool_calls":null},"logprobs":null,"finish_reason":"length","big":123456789012345678901234567890}],
			"usage":{"total_tokens":1.0},"prompt_filter_results":[{"a":[{"index":3}]}],"error":null,"x":{"y":null}}`),
		"null usage": []byte(`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":null}`),
	}
	for _, file := range files {
		if docs[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	for name, doc := range docs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream, err := Stream(doc, true)
			if err != nil {
				t.Fatal(err)
			}
			back, err := Completion(stream)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(canonicalJSON(t, doc), canonicalJSON(t, back)); diff != "" {
				t.Errorf("completion (-before +after):\n%s", diff)
			}
		})
	}
}

// TestRoundTripNormalises lists all that a round trip changes, by intent: a tool call's own index has no place outside
// of streams, and a message without a role is the assistant's.
func TestRoundTripNormalises(t *testing.T) {
	t.Parallel()
	stream, err := Stream([]byte(`{"choices":[{"message":{"role":null,"tool_calls":[{"index":0,"id":"a"}]},"finish_reason":"stop"}],"obfuscation":"x"}`), true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Completion(stream)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"a"}]},"finish_reason":"stop"}]}`
	if diff := cmp.Diff(canonicalJSON(t, []byte(want)), canonicalJSON(t, got)); diff != "" {
		t.Errorf("completion (-want +got):\n%s", diff)
	}
}

// FuzzCompletion: what is assembled survives a further round trip unchanged, however the stream is cut.
func FuzzCompletion(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join("testdata", "streams", "*.sse"))
	for _, file := range files {
		if in, err := os.ReadFile(file); err == nil {
			f.Add(in)
		}
	}
	f.Add(sse(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}`), stop, "[DONE]"))
	f.Fuzz(func(t *testing.T, in []byte) {
		first, err := Completion(in)
		c := NewCollector("chat", "text/event-stream", 1<<20)
		for i := range in {
			c.Write(in[i : i+1])
		}
		if _, collected, collectErr := c.Finish(); (err == nil) != (collectErr == nil) || !bytes.Equal(first, collected) {
			t.Fatalf("whole: %s, %v; byte by byte: %s, %v", first, err, collected, collectErr)
		}
		if err != nil {
			return
		}
		stream, err := Stream(first, true)
		if err != nil {
			return // a part that streams have no form for
		}
		again, err := Completion(stream)
		if err != nil {
			t.Fatalf("%s\nmakes the stream\n%s\nwhich does not assemble: %v", first, stream, err)
		}
		if diff := cmp.Diff(canonicalJSON(t, first), canonicalJSON(t, again)); diff != "" {
			t.Fatalf("round trip (-before +after):\n%s", diff)
		}
	})
}

// FuzzStream: a completion that can be streamed comes back with every member but those of TestRoundTripNormalises.
func FuzzStream(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join("testdata", "completions", "*.json"))
	for _, file := range files {
		if in, err := os.ReadFile(file); err == nil {
			f.Add(in)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		stream, err := Stream(in, true)
		if err != nil {
			return
		}
		back, err := Completion(stream)
		if err != nil {
			t.Fatalf("%s\nmakes the stream\n%s\nwhich does not assemble: %v", in, stream, err)
		}
		root, err := parseNode(in)
		if err != nil {
			t.Fatal(err)
		}
		normalise(root)
		if diff := cmp.Diff(canonicalJSON(t, root.append(nil)), canonicalJSON(t, back)); diff != "" {
			t.Fatalf("round trip (-before +after):\n%s", diff)
		}
	})
}

// normalise applies what a round trip changes by intent.
func normalise(root *node) {
	root.set("object", textNode("chat.completion"))
	var members []named
	for _, m := range root.members {
		if m.name != "obfuscation" {
			members = append(members, m)
		}
	}
	root.members = members
	for i, choice := range root.get("choices").items {
		choice.set("index", intNode(i))
		message := choice.get("message")
		if message.get("role").isNull() {
			message.set("role", textNode("assistant"))
		}
		if calls := message.get("tool_calls"); calls != nil && calls.kind == '[' {
			for _, call := range calls.items {
				var kept []named
				for _, m := range call.members {
					if m.name != "index" {
						kept = append(kept, m)
					}
				}
				call.members = kept
			}
		}
	}
}

func BenchmarkCompletion(b *testing.B) {
	events := []string{delta(`{"role":"assistant","content":""}`)}
	for range 1000 {
		events = append(events, delta(`{"content":" word"}`))
	}
	in := sse(append(events, stop, "[DONE]")...)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Completion(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	in := []byte(`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("word ", 400) + `"},"finish_reason":"stop"}]}`)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Stream(in, true); err != nil {
			b.Fatal(err)
		}
	}
}
