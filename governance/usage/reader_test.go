package usage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read sends an answer through a Reader, cut before the given offsets, and returns what the client got.
func read(answer []byte, opt ReaderOptions, cuts ...int) (client []byte, result Result) {
	r := NewReader("text/event-stream; charset=utf-8", opt)
	from := 0
	for _, cut := range append(cuts, len(answer)) {
		client = append(client, r.Write(bytes.Clone(answer[from:cut]))...)
		from = cut
	}
	client = append(client, r.Close()...)
	return client, r.Result()
}

// everyByte is a cut before every byte of an answer of that length.
func everyByte(length int) []int {
	cuts := make([]int, 0, length)
	for i := 1; i < length; i++ {
		cuts = append(cuts, i)
	}
	return cuts
}

// randomCuts are some cuts in ascending order.
func randomCuts(rng *rand.Rand, length int) []int {
	var cuts []int
	for at := 0; ; {
		at += 1 + rng.IntN(1+rng.IntN(length+1))
		if at >= length {
			return cuts
		}
		cuts = append(cuts, at)
	}
}

// TestReaderFixtures reads every recorded answer whole, byte by byte and in 500 random splits, with and without
// stripping: the result is always the same, and the client gets the upstream's bytes but for the usage chunks.
func TestReaderFixtures(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures(t, "stream", "response", "error") {
		t.Run(f.File, func(t *testing.T) {
			t.Parallel()
			stripped := stripReference(f.body)
			rng := rand.New(rand.NewPCG(1, 2))
			splits := [][]int{nil, everyByte(len(f.body))}
			for range 500 {
				splits = append(splits, randomCuts(rng, len(f.body)))
			}
			for _, cuts := range splits {
				client, result := read(f.body, ReaderOptions{}, cuts...)
				if !bytes.Equal(client, f.body) {
					t.Fatalf("cuts %v: the client got\n%s\nwant the upstream's bytes", cuts, client)
				}
				checkResult(t, &f, result)
				client, again := read(f.body, ReaderOptions{StripUsage: true}, cuts...)
				if !bytes.Equal(client, stripped) {
					t.Fatalf("cuts %v: the client got\n%s\nwant\n%s", cuts, client, stripped)
				}
				if diff := cmp.Diff(result, again); diff != "" {
					t.Fatalf("cuts %v: stripping changes the result: %s", cuts, diff)
				}
			}
		})
	}
}

func checkResult(t *testing.T, f *fixture, got Result) {
	t.Helper()
	want, has := f.usage()
	if got.HasUsage != has || got.Usage != want {
		t.Fatalf("usage %+v, %t, want %+v, %t", got.Usage, got.HasUsage, want, has)
	}
	if got.Complete != f.Complete {
		t.Fatalf("Complete = %t, want %t", got.Complete, f.Complete)
	}
	if failed := f.ErrorType != "" || f.Kind == "error"; got.Failed != failed {
		t.Fatalf("Failed = %t, want %t", got.Failed, failed)
	}
	if f.Model != "" && got.Model != f.Model {
		t.Fatalf("Model = %q, want %q", got.Model, f.Model)
	}
	if f.TextBytes != 0 && got.OutputBytes != f.TextBytes {
		t.Fatalf("OutputBytes = %d, want %d", got.OutputBytes, f.TextBytes)
	}
	if f.ServiceTier != "" && got.ServiceTier != f.ServiceTier {
		t.Fatalf("ServiceTier = %q, want %q", got.ServiceTier, f.ServiceTier)
	}
}

// The chunks of one logical stream with usage 7/5/12, as data.
const (
	helloChunk  = `{"id":"c","choices":[{"index":0,"delta":{"content":"Hé"},"finish_reason":null}],"usage":null}`
	finishChunk = `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageChunk  = `{"id":"c","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`
)

// TestReaderFraming writes that stream in every way the event stream format allows.
func TestReaderFraming(t *testing.T) {
	t.Parallel()
	lf := func(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }
	whole := lf(helloChunk, finishChunk, usageChunk, doneWord)
	for _, tt := range []struct {
		name, stream string
		want         string // "": as the stream without the usage chunk's event
	}{
		{"lf", whole, lf(helloChunk, finishChunk, doneWord)},
		{"crlf", strings.ReplaceAll(whole, "\n", "\r\n"), strings.ReplaceAll(lf(helloChunk, finishChunk, doneWord), "\n", "\r\n")},
		{"cr", strings.ReplaceAll(whole, "\n", "\r"), strings.ReplaceAll(lf(helloChunk, finishChunk, doneWord), "\n", "\r")},
		{"mixed", "data: " + helloChunk + "\n\r\ndata: " + finishChunk + "\r\n\ndata: " + usageChunk + "\r\r\ndata: [DONE]\r\n\r",
			"data: " + helloChunk + "\n\r\ndata: " + finishChunk + "\r\n\ndata: [DONE]\r\n\r"},
		{"no space", strings.ReplaceAll(whole, "data: ", "data:"), ""},
		{"two spaces", strings.ReplaceAll(whole, "data: ", "data:  "), ""},
		{"comments", ": keep-alive\n\n:\n" + lf(helloChunk, finishChunk) + ": x\n\n" + lf(usageChunk) + ":\n\n" + lf(doneWord),
			": keep-alive\n\n:\n" + lf(helloChunk, finishChunk) + ": x\n\n:\n\n" + lf(doneWord)},
		{"comment at the head of the usage event", lf(helloChunk, finishChunk) + ": x\n" + lf(usageChunk, doneWord),
			lf(helloChunk, finishChunk) + ": x\n" + lf(doneWord)},
		{"comment inside the usage event", lf(helloChunk, finishChunk) + "data: " + usageChunk + "\n: x\n\n" + lf(doneWord),
			lf(helloChunk, finishChunk, doneWord)},
		{"other fields", "event: message\nid: 1\nretry: 5\n" + lf(helloChunk, finishChunk) + "id: 2\nevent: message\ndata: " + usageChunk +
			"\nretry: 6\n\n" + lf(doneWord), "event: message\nid: 1\nretry: 5\n" + lf(helloChunk, finishChunk, doneWord)},
		{"fields that only begin like data", "datum: 1\ndata2: {\ndat\n" + whole, ""},
		{"two data lines", lf(helloChunk, finishChunk) + "data: " + strings.Replace(usageChunk, `,"usage"`, ",\ndata: \"usage\"", 1) + "\n\n" +
			lf(doneWord), lf(helloChunk, finishChunk, doneWord)},
		{"one event over many data lines", strings.ReplaceAll(whole, ",", ",\ndata:"), ""},
		{"byte order mark", "\xEF\xBB\xBF" + whole, "\xEF\xBB\xBF" + lf(helloChunk, finishChunk, doneWord)},
		{"blank lines first", "\r\n\n\r" + whole, ""},
		{"usage after done", lf(helloChunk, finishChunk, doneWord, usageChunk), lf(helloChunk, finishChunk, doneWord)},
		{"no done", lf(helloChunk, finishChunk, usageChunk), lf(helloChunk, finishChunk)},
		{"no last blank line", strings.TrimRight(whole, "\n"), strings.TrimRight(lf(helloChunk, finishChunk, doneWord), "\n")},
		{"usage last, no blank line", strings.TrimRight(lf(helloChunk, finishChunk, usageChunk), "\n"), lf(helloChunk, finishChunk)},
		{"usage last, one line feed", strings.TrimRight(lf(helloChunk, finishChunk, usageChunk), "\n") + "\n", lf(helloChunk, finishChunk)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			stream := []byte(tt.stream)
			want := []byte(tt.want)
			if tt.want == "" {
				want = stripReference(stream)
			}
			splits := [][]int{nil, everyByte(len(stream))}
			for cut := 1; cut < len(stream); cut++ {
				splits = append(splits, []int{cut})
			}
			rng := rand.New(rand.NewPCG(3, 4))
			for range 500 {
				splits = append(splits, randomCuts(rng, len(stream)))
			}
			for _, cuts := range splits {
				client, result := read(stream, ReaderOptions{}, cuts...)
				if !bytes.Equal(client, stream) {
					t.Fatalf("cuts %v: the client got %q", cuts, client)
				}
				want := Result{Usage: Usage{Input: 7, Output: 5}, HasUsage: true, Complete: true, FinishSeen: true, OutputBytes: 3}
				if diff := cmp.Diff(want, result); diff != "" {
					t.Fatalf("cuts %v: %s", cuts, diff)
				}
			}
			for _, cuts := range splits {
				client, result := read(stream, ReaderOptions{StripUsage: true}, cuts...)
				if !bytes.Equal(client, want) {
					t.Fatalf("cuts %v: the client got\n%q, want\n%q", cuts, client, want)
				}
				if result.Usage != (Usage{Input: 7, Output: 5}) {
					t.Fatalf("cuts %v: usage %+v", cuts, result.Usage)
				}
			}
		})
	}
}

// TestReaderUTF8 cuts text of many bytes a character everywhere while stripping is on.
func TestReaderUTF8(t *testing.T) {
	t.Parallel()
	text := "漢字かな交じり 👩‍👩‍👧‍👦🏳️‍🌈 שלום مرحبا e\u0301 \xC3\x28 \xF0\x9F"
	content := "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + text + "\"}}]}\n\n"
	stream := []byte(content + "data: " + usageChunk + "\n\n" + "data: [DONE]\n\n")
	want := []byte(content + "data: [DONE]\n\n")
	for cut := range len(stream) {
		client, result := read(stream, ReaderOptions{StripUsage: true}, cut)
		if !bytes.Equal(client, want) {
			t.Fatalf("cut %d: the client got %q", cut, client)
		}
		if result.OutputBytes != int64(len(text)) || result.Usage.Output != 5 {
			t.Fatalf("cut %d: %+v", cut, result)
		}
	}
}

// TestReaderStrips says which chunks are usage chunks.
func TestReaderStrips(t *testing.T) {
	t.Parallel()
	const counts = `{"prompt_tokens":1,"completion_tokens":1}`
	for _, tt := range []struct {
		name, data string
		want       bool
	}{
		{"usage chunk", `{"id":"a","choices":[],"usage":` + counts + `}`, true},
		{"usage first", `{"usage":` + counts + `, "choices" : [ ] }`, true},
		{"timings beside", `{"choices":[],"usage":` + counts + `,"timings":{"cache_n":8}}`, true},
		{"null error", `{"choices":[],"usage":` + counts + `,"error":null}`, true},
		{"usage null", `{"choices":[],"usage":null}`, false},
		{"no usage", `{"choices":[]}`, false},
		{"usage empty", `{"choices":[],"usage":{}}`, false},
		{"azure's prompt filter", `{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}`, false},
		{"azure's prompt filter with usage", `{"choices":[],"usage":` + counts + `,"prompt_filter_results":[{"prompt_index":0}]}`, false},
		{"moderation", `{"choices":[],"usage":` + counts + `,"moderation":{}}`, false},
		{"content and usage", `{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":` + counts + `}`, false},
		{"a choice without content", `{"choices":[{"index":0,"delta":{}}],"usage":` + counts + `}`, false},
		{"no choices at all", `{"usage":` + counts + `}`, false},
		{"choices null", `{"choices":null,"usage":` + counts + `}`, false},
		{"error", `{"choices":[],"usage":` + counts + `,"error":{"message":"x"}}`, false},
		{"groq's own", `{"choices":[{"index":0,"delta":{}}],"x_groq":{"usage":` + counts + `}}`, false},
		{"choices below", `{"x":{"choices":[1]},"choices":[],"usage":` + counts + `}`, true},
		{"usage below", `{"choices":[],"x":{"usage":` + counts + `}}`, false},
		{"words in a string", `{"id":"\"choices\":[1] {","choices":[],"usage":` + counts + `}`, true},
		{"no json", `"choices":[],"usage":` + counts, false},
		{"cut json", `{"choices":[],"usage":` + counts, false},
		{"json that does not nest", `{"choices":[],"usage":` + counts + `]`, false},
		{"long", `{"id":"` + strings.Repeat("a", maxHeld) + `","choices":[],"usage":` + counts + `}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			stream := "data: " + finishChunk + "\n\ndata: " + tt.data + "\n\ndata: [DONE]\n\n"
			want := stream
			if tt.want {
				want = "data: " + finishChunk + "\n\ndata: [DONE]\n\n"
			}
			cuts := everyByte(len(stream))
			if client, _ := read([]byte(stream), ReaderOptions{StripUsage: true}, cuts...); string(client) != want {
				t.Errorf("the client got\n%s\nwant\n%s", client, want)
			}
		})
	}
}

// TestReaderDelays shows when the beginning of an event goes out.
func TestReaderDelays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		strip  bool
		pieces []string
		want   []string // what each piece lets pass
	}{
		{"off", false, []string{"da", "ta: {\"choices\":[],", "\"usage\""}, []string{"da", "ta: {\"choices\":[],", "\"usage\""}},
		{"comments at once", true, []string{": keep", "-alive\n", "\n"}, []string{": keep", "-alive\n", "\n"}},
		{"content as soon as it shows", true, []string{"data: {\"id\":1,\"choices\":", "[{", "\"delta\":{}}]", "}\n\n"},
			[]string{"", "data: {\"id\":1,\"choices\":[{", "\"delta\":{}}]", "}\n\n"}},
		{"done as soon as it shows", true, []string{"data:", " [", "DONE]"}, []string{"", "data: [", "DONE]"}},
		{"what comes before", true, []string{": a\n\ndata: {", "\"choices\":[{}"}, []string{": a\n\n", "data: {\"choices\":[{}"}},
		{"error", true, []string{"data: {\"error\":{}", "}"}, []string{"data: {\"error\":{}", "}"}},
		{"garbage", true, []string{"data: {]", "x"}, []string{"data: {]", "x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := NewReader("text/event-stream", ReaderOptions{StripUsage: tt.strip})
			for i, piece := range tt.pieces {
				if got := string(r.Write([]byte(piece))); got != tt.want[i] {
					t.Errorf("piece %d: %q passes, want %q", i, got, tt.want[i])
				}
			}
		})
	}
}

func TestReaderComplete(t *testing.T) {
	t.Parallel()
	choice := func(index int, finish string) string {
		return fmt.Sprintf(`data: {"choices":[{"finish_reason":%s,"index":%d,"delta":{}}]}`+"\n\n", finish, index)
	}
	for _, tt := range []struct {
		name, contentType, answer string
		want                      bool
	}{
		{"nothing", "text/event-stream", "", false},
		{"done", "text/event-stream", choice(0, "null") + "data: [DONE]", true},
		{"done with a blank", "text/event-stream", "data: [DONE] \n\n", true},
		{"something like done", "text/event-stream", "data: [DONE]!\n\n", false},
		{"finished", "text/event-stream", choice(0, `"stop"`), true},
		{"one of two finished", "text/event-stream", choice(0, `"stop"`) + choice(1, "null"), false},
		{"both finished", "text/event-stream", choice(1, "null") + choice(0, `"stop"`) + choice(1, `"length"`), true},
		{"a choice beyond the tracked", "text/event-stream", choice(0, `"stop"`) + choice(1000, `"stop"`), false},
		{"cut inside the next event", "text/event-stream", choice(0, `"stop"`) + `data: {"choices":[{"index":1`, false},
		{"error before done", "text/event-stream", `data: {"error":"x"}` + "\n\ndata: [DONE]\n\n", false},
		{"a long error", "text/event-stream", `data: {"error":"` + strings.Repeat("x", maxRaw) + `"}` + "\n\ndata: [DONE]\n\n", false},
		{"groq's error", "text/event-stream", `data: {"choices":[],"x_groq":{"error":"x"}}` + "\n\ndata: [DONE]\n\n", false},
		{"json", "application/json", `{"choices":[]}` + "\n", true},
		{"json after a byte order mark", "application/json", "\xEF\xBB\xBF{}", true},
		{"json cut", "application/json", `{"choices":[]`, false},
		{"json cut inside a string", "application/json", `{"a":"}`, false},
		{"json and more", "application/json", `{"choices":[]}{}`, false},
		{"json that does not nest", "application/json", `{"choices":[}}`, false},
		{"no json", "text/plain", "upstream connect error", false},
		{"stream as text", "text/plain", "data: [DONE]\n\n", true},
		{"json as stream", "text/event-stream", `{"choices":[]}`, true},
		{"json error as stream", "text/event-stream", `{"error":{"message":"x"}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := NewReader(tt.contentType, ReaderOptions{StripUsage: true})
			client := string(r.Write([]byte(tt.answer))) + string(r.Close())
			if client != tt.answer {
				t.Errorf("the client got %q, want %q", client, tt.answer)
			}
			if got := r.Result().Complete; got != tt.want {
				t.Errorf("Complete = %t, want %t", got, tt.want)
			}
		})
	}
}

func TestReaderOutputBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, choice string
		want         int64
	}{
		{"content", `{"delta":{"content":"abc"}}`, 3},
		{"escapes", `{"delta":{"content":"\n\"\u00e9\u4e2d\ud83d\ude00\\u0041"}}`, 1 + 1 + 2 + 3 + 4 + 6},
		{"message", `{"message":{"role":"assistant","content":"abc","reasoning_content":"de","refusal":"f"}}`, 6},
		{"tool arguments", `{"delta":{"tool_calls":[{"id":"x","type":"function","function":{"name":"get","arguments":"{\"a\":1}"}}]}}`, 3 + 7},
		{"content in parts", `{"message":{"content":[{"type":"text","text":"abc"},{"thinking":[{"text":"de"}]}]}}`, 5},
		{"old completion", `{"text":"abc"}`, 3},
		{"sound", `{"message":{"audio":{"data":"AAAA","transcript":"Hi."}}}`, 3},
		{"log probabilities do not count", `{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a"}]}}`, 1},
		{"names do not count", `{"delta":{"role":"content"},"finish_reason":"text"}`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			answer := []byte(`{"choices":[` + tt.choice + `]}`)
			for _, cuts := range [][]int{nil, everyByte(len(answer))} {
				if _, result := read(answer, ReaderOptions{}, cuts...); result.OutputBytes != tt.want {
					t.Errorf("cuts %v: OutputBytes = %d, want %d", cuts, result.OutputBytes, tt.want)
				}
			}
		})
	}
}

// The last usage stands, whatever it says.
func TestReaderLastUsageWins(t *testing.T) {
	t.Parallel()
	chunk := func(usage string) string { return `data: {"choices":[{"delta":{}}],"usage":` + usage + "}\n\n" }
	for _, tt := range []struct {
		name, stream string
		want         Usage
	}{
		{"larger", chunk(`{"prompt_tokens":1,"completion_tokens":1}`) + chunk(`{"prompt_tokens":1,"completion_tokens":9}`), Usage{Input: 1, Output: 9}},
		{"zero", chunk(`{"prompt_tokens":1,"completion_tokens":1}`) + chunk(`{"prompt_tokens":0,"completion_tokens":0}`), Usage{}},
		{"null does not count", chunk(`{"prompt_tokens":1,"completion_tokens":1}`) + chunk(`null`), Usage{Input: 1, Output: 1}},
		{"a string does not count", chunk(`{"prompt_tokens":1,"completion_tokens":1}`) + chunk(`"{}"`), Usage{Input: 1, Output: 1}},
		{"cut usage does not count", chunk(`{"prompt_tokens":1,"completion_tokens":1}`) + `data: {"usage":{"prompt_tokens":7,`, Usage{Input: 1, Output: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, result := read([]byte(tt.stream), ReaderOptions{})
			if result.Usage != tt.want || !result.HasUsage {
				t.Errorf("usage %+v, %t, want %+v", result.Usage, result.HasUsage, tt.want)
			}
		})
	}
}

func TestReaderCollects(t *testing.T) {
	t.Parallel()
	answer := []byte("data: " + finishChunk + "\n\ndata: " + usageChunk + "\n\ndata: [DONE]\n\n")
	for _, tt := range []struct {
		name  string
		limit int64
		want  bool
	}{
		{"off", 0, false},
		{"too long by a byte", int64(len(answer)) - 1, false},
		{"fits", int64(len(answer)), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := NewReader("text/event-stream", ReaderOptions{StripUsage: true, Collect: tt.limit})
			for _, c := range answer {
				r.Write([]byte{c})
			}
			r.Close()
			got, ok := r.Collected()
			if ok != tt.want || ok && !bytes.Equal(got, answer) {
				t.Errorf("Collected = %q, %t, want %t", got, ok, tt.want)
			}
		})
	}
}

func TestReaderCloseTwice(t *testing.T) {
	t.Parallel()
	r := NewReader("text/event-stream", ReaderOptions{StripUsage: true})
	r.Write([]byte("data: {\"id\":1"))
	if got := string(r.Close()); got != "data: {\"id\":1" {
		t.Errorf("Close = %q", got)
	}
	if got := r.Close(); got != nil {
		t.Errorf("the second Close = %q", got)
	}
}

// An answer of any length costs the memory of its longest withheld event.
func TestReaderMemoryIsConstant(t *testing.T) {
	chunk := []byte("data: " + helloChunk + "\n\n")
	usage := []byte(`data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}` + "\n\n")
	r := NewReader("text/event-stream", ReaderOptions{StripUsage: true})
	r.Write(chunk)
	r.Write(usage)
	allocs := testing.AllocsPerRun(100_000, func() {
		r.Write(chunk)
		r.Write(usage)
	})
	if allocs != 0 {
		t.Errorf("allocations a chunk = %v, want 0", allocs)
	}
}
