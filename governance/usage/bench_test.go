package usage

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// chatBody is a request of about size bytes, in messages of about a kilobyte.
func chatBody(size int) []byte {
	sentence := strings.Repeat("The river Oder rises in the Czech Republic and reaches the Baltic Sea.\\n", 14)
	var b bytes.Buffer
	b.WriteString(`{"messages":[{"role":"system","content":"Answer in one line."}`)
	for b.Len() < size {
		fmt.Fprintf(&b, `,{"role":"user","content":"%s"}`, sentence)
	}
	b.WriteString(`],"model":"gpt-4o-mini","stream":true,"temperature":0.2,"max_completion_tokens":256,"user":"u-1"}`)
	return b.Bytes()
}

func BenchmarkParseChat(b *testing.B) {
	image := []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.Repeat("iVBORw0K", 10<<17) + `"}}]}]}`)
	for _, bb := range []struct {
		name string
		body []byte
	}{
		{"2KB", chatBody(1000)},
		{"10MB text", chatBody(10 << 20)},
		{"10MB image", image},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.body)))
			for b.Loop() {
				if _, err := ParseChat(bb.body, defaultSources); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	body := chatBody(1000)
	r := parse(b, string(body))
	b.ReportAllocs()
	for b.Loop() {
		r.Apply(body, Edits{Model: "gpt-4o-mini-2024-07-18", IncludeUsage: true})
	}
}

func BenchmarkTextWeight(b *testing.B) {
	for _, bb := range []struct{ name, text string }{
		{"plain", strings.Repeat("The river Oder rises in the Czech Republic. ", 24_000)},
		{"escaped", strings.Repeat(`The river Oder \"rises\" in\nthe \u010cesk\u00e1 republika. `, 20_000)},
	} {
		quoted := []byte(`"` + bb.text + `"`)
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(quoted)))
			for b.Loop() {
				textWeight(quoted)
			}
		})
	}
}

// BenchmarkReader reads a stream of 200 chunks, one a piece.
func BenchmarkReader(b *testing.B) {
	var pieces [][]byte
	size := 0
	for i := range 200 {
		piece := fmt.Appendf(nil, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1795000001,"model":"gpt-4o-mini",`+
			`"service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,`+
			`"finish_reason":null}],"usage":null}`+"\n\n", i)
		pieces = append(pieces, piece)
	}
	pieces = append(pieces, []byte("data: "+finishChunk+"\n\n"), []byte("data: "+usageChunk+"\n\ndata: [DONE]\n\n"))
	for _, piece := range pieces {
		size += len(piece)
	}
	for _, strip := range []bool{false, true} {
		b.Run(fmt.Sprintf("strip=%t", strip), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				r := NewReader("text/event-stream", ReaderOptions{StripUsage: strip})
				for _, piece := range pieces {
					r.Write(piece)
				}
				r.Close()
				if !r.Result().HasUsage {
					b.Fatal("no usage")
				}
			}
		})
	}
}

// BenchmarkReaderJSON reads an answer of 2 KB and one of 20 MB in pieces of 64 KB.
func BenchmarkReaderJSON(b *testing.B) {
	for _, length := range []int{1 << 10, 20 << 20} {
		answer := []byte(`{"id":"c","choices":[{"index":0,"message":{"content":"` + strings.Repeat("word ", length/5) +
			`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`)
		b.Run(fmt.Sprintf("%dB", length), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(answer)))
			for b.Loop() {
				r := NewReader("application/json", ReaderOptions{})
				for rest := answer; len(rest) > 0; {
					n := min(len(rest), 64<<10)
					r.Write(rest[:n])
					rest = rest[n:]
				}
				if !r.Result().Complete {
					b.Fatal("not complete")
				}
			}
		})
	}
}
