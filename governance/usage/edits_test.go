package usage

import (
	"bytes"
	"testing"
)

// TestApplyStreamOptions has the eight requests of stream_options handling: the upstream must report usage on every
// stream, and be asked for nothing on anything else.
func TestApplyStreamOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body, want string
		edits            Edits
	}{
		{"a absent", `{"model":"m","stream":true}`,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, Edits{IncludeUsage: true}},
		{"b false", `{"model":"m","stream":true,"stream_options":{"include_usage": false }}`,
			`{"model":"m","stream":true,"stream_options":{"include_usage": true }}`, Edits{IncludeUsage: true}},
		{"b null inside", `{"model":"m","stream":true,"stream_options":{"a":1,"include_usage":null}}`,
			`{"model":"m","stream":true,"stream_options":{"a":1,"include_usage":true}}`, Edits{IncludeUsage: true}},
		{"c true", `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, "", Edits{IncludeUsage: true}},
		{"d null", `{"stream":true,"stream_options":null,"model":"m"}`,
			`{"stream":true,"stream_options":{"include_usage":true},"model":"m"}`, Edits{IncludeUsage: true}},
		{"e vendor", `{"model":"m","stream":true,"stream_options": {"x_vendor":1}}`,
			`{"model":"m","stream":true,"stream_options": {"include_usage":true,"x_vendor":1}}`, Edits{IncludeUsage: true}},
		{"e empty", `{"model":"m","stream":true,"stream_options":{ }}`,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true }}`, Edits{IncludeUsage: true}},
		{"f no stream", `{"model":"m","stream":false}`, "", Edits{IncludeUsage: true}},
		{"f options without stream", `{"model":"m","stream":false,"stream_options":{"include_usage":false}}`, "", Edits{IncludeUsage: true}},
		{"g stream absent", `{"model":"m"}`, "", Edits{IncludeUsage: true}},
		{"h not supported", `{"model":"m","stream":true}`, "", Edits{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkApply(t, tt.body, tt.want, tt.edits)
		})
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	all := Edits{Model: "up", IncludeUsage: true, OutputCap: 512}
	for _, tt := range []struct {
		name, body, want string // want "": the body itself
		edits            Edits
	}{
		{"nothing", ` {"model":"m"} `, "", Edits{}},
		{"same model", `{"model":"m"}`, "", Edits{Model: "m"}},
		{"same model escaped", `{"model":"\u006d"}`, "", Edits{Model: "m"}},
		{"model", "{ \"messages\" : [],\n\t\"model\" : \"m\" , \"x\":1.0}", "{ \"messages\" : [],\n\t\"model\" : \"up\" , \"x\":1.0}",
			Edits{Model: "up"}},
		{"model to quote", `{"model":"m"}`, `{"model":"a\"\\é\n"}`, Edits{Model: "a\"\\é\n"}},
		{"cap", `{"model":"m"}`, `{"model":"m","max_completion_tokens":512}`, Edits{OutputCap: 512}},
		{"the client's cap stands", `{"model":"m","max_tokens":9}`, "", Edits{OutputCap: 512}},
		{"cap of zero", `{"max_completion_tokens":0,"model":"m"}`, `{"max_completion_tokens":512,"model":"m"}`, Edits{OutputCap: 512}},
		{"cap of null", `{"max_completion_tokens":null,"model":"m"}`, `{"max_completion_tokens":512,"model":"m"}`, Edits{OutputCap: 512}},
		{"old cap below zero", `{"max_tokens":-1,"model":"m"}`, `{"max_tokens":512,"model":"m"}`, Edits{OutputCap: 512}},
		{"old cap of null", `{"max_tokens":null,"model":"m"}`, `{"max_tokens":null,"model":"m","max_completion_tokens":512}`,
			Edits{OutputCap: 512}},
		{"two caps below zero", `{"max_tokens":-1,"model":"m","max_completion_tokens":-2}`,
			`{"max_tokens":512,"model":"m","max_completion_tokens":512}`, Edits{OutputCap: 512}},
		{"all at once", `{"stream":true,"model":"m"}`,
			`{"stream":true,"model":"up","stream_options":{"include_usage":true},"max_completion_tokens":512}`, all},
		{"all in another order", `{"max_tokens":0,"stream_options":{"x":1},"stream":true,"model":"m" }`,
			`{"max_tokens":512,"stream_options":{"include_usage":true,"x":1},"stream":true,"model":"up" }`, all},
		{"cache controls in the middle", `{"stream":true,"cache":{"ttl":1},"model":"m"}`, `{"stream":true,"model":"m"}`, Edits{}},
		{"cache controls first", `{ "cache":{} , "model":"m"}`, `{ "model":"m"}`, Edits{}},
		{"cache controls last", `{"model":"m" , "cache":{"no-cache":true}}`, `{"model":"m"}`, Edits{}},
		{"cache controls last and more", `{"stream":true,"model":"m","cache":{}}`,
			`{"stream":true,"model":"up","stream_options":{"include_usage":true},"max_completion_tokens":512}`, all},
		{"somebody else's cache", `{"model":"m","cache":true}`, "", Edits{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkApply(t, tt.body, tt.want, tt.edits)
		})
	}
}

// checkApply compares an edited body; want "" stands for the body itself, not a copy. The body must stay as it is.
func checkApply(t *testing.T, text, want string, edits Edits) {
	t.Helper()
	body := []byte(text)
	got := parse(t, text).Apply(body, edits)
	if string(body) != text {
		t.Errorf("the body was written to: %s", body)
	}
	if want == "" {
		if &got[0] != &body[0] || len(got) != len(body) {
			t.Errorf("got %s, want the body itself", got)
		}
		return
	}
	if string(got) != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestApplyAllocatesOnce(t *testing.T) {
	body := append(bytes.Repeat([]byte(" "), 1<<20), `{"model":"m","stream":true}`...)
	r := parse(t, string(body))
	allocs := testing.AllocsPerRun(10, func() {
		r.Apply(body, Edits{Model: "upstream-model", IncludeUsage: true, OutputCap: 1 << 40})
	})
	if allocs != 1 {
		t.Errorf("allocations = %v, want 1", allocs)
	}
}
