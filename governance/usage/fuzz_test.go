package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// FuzzParseChat: a body is either refused with a *MalformedError, or it is strict JSON, and whatever edits are made
// to it change what they are about and nothing else.
func FuzzParseChat(f *testing.F) {
	for _, fixture := range fixtures(f, "request", "hostile") {
		if len(fixture.body) < 1000 {
			f.Add(fixture.body, "upstream", true, int64(64))
		}
	}
	for _, body := range []string{
		`{"stream":true,"model":"m","stream_options":{"x":1}}`, `{"cache":{},"model":"m","max_tokens":-1}`,
		`{"model":"m","stream_options":{"include_usage":null},"stream":true,"cache":{"ttl":1}}`,
		`{"max_completion_tokens":null,"model":"m" , "stream_options" :null,"stream": true}`,
	} {
		f.Add([]byte(body), "a\"b", true, int64(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, model string, includeUsage bool, outputCap int64) {
		before := bytes.Clone(body)
		r, err := ParseChat(body, defaultSources)
		if err != nil {
			if _, ok := errors.AsType[*MalformedError](err); !ok || r != nil {
				t.Fatalf("ParseChat = %+v, %T", r, err)
			}
			return
		}
		if !jsontext.Value(body).IsValid() {
			t.Fatal("a body that is not strict json passes")
		}
		if r.OutputCap < 0 || r.OutputCap > MaxTokens || r.Choices < 1 || r.Choices > MaxChoices || r.InputTokens < 0 {
			t.Fatalf("out of bounds: %+v", r)
		}
		if !utf8.ValidString(model) {
			return
		}
		edited := r.Apply(body, Edits{Model: model, IncludeUsage: includeUsage, OutputCap: outputCap})
		if !bytes.Equal(body, before) {
			t.Fatal("the body was written to")
		}
		want := expectedMembers(t, r, body, model, includeUsage, outputCap)
		if diff := cmp.Diff(want, membersOf(t, edited)); diff != "" {
			t.Fatalf("%s\nbecame\n%s\n%s", body, edited, diff)
		}
	})
}

// membersOf decodes a body's top level, with the values as written.
func membersOf(t *testing.T, body []byte) map[string]string {
	t.Helper()
	if !jsontext.Value(body).IsValid() {
		t.Fatalf("not strict json: %s", body)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		t.Fatal(err)
	}
	members := make(map[string]string, len(raw))
	for name, value := range raw {
		members[name] = string(value)
	}
	return members
}

// expectedMembers makes the edits on the decoded body.
func expectedMembers(t *testing.T, r *Request, body []byte, model string, includeUsage bool, outputCap int64) map[string]string {
	t.Helper()
	want := maps.Clone(membersOf(t, body))
	if model != "" && model != r.Model {
		quoted, err := jsontext.AppendQuote(nil, model)
		if err != nil {
			t.Fatal(err)
		}
		want["model"] = string(quoted)
	}
	if value := want["cache"]; value != "" && value[0] == '{' {
		delete(want, "cache")
	}
	if includeUsage && r.Stream && !r.IncludeUsage {
		want["stream_options"] = withUsage(t, want["stream_options"])
	}
	if outputCap > 0 && r.OutputCap == 0 {
		number, _ := json.Marshal(outputCap)
		old, hasOld := want["max_tokens"]
		_, hasNew := want["max_completion_tokens"]
		if hasOld && old != "null" {
			want["max_tokens"] = string(number)
		}
		if hasNew || !hasOld || old == "null" {
			want["max_completion_tokens"] = string(number)
		}
	}
	return want
}

// withUsage checks nothing but builds the options by the same rule in another way: by their text.
func withUsage(t *testing.T, options string) string {
	t.Helper()
	if options == "" || options == "null" {
		return `{"include_usage":true}`
	}
	inside := membersOf(t, []byte(options))
	if old, has := inside["include_usage"]; has {
		at := lastMember(t, options, "include_usage")
		return options[:at] + "true" + options[at+len(old):]
	}
	if len(inside) == 0 {
		return `{"include_usage":true` + options[1:]
	}
	return `{"include_usage":true,` + options[1:]
}

// lastMember is the offset of a member's value in an object.
func lastMember(t *testing.T, object, name string) int {
	t.Helper()
	dec := jsontext.NewDecoder(bytes.NewBufferString(object))
	if _, err := dec.ReadToken(); err != nil {
		t.Fatal(err)
	}
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			t.Fatal(err)
		}
		found := token.String() == name
		value, err := dec.ReadValue()
		if err != nil {
			t.Fatal(err)
		}
		if found {
			return int(dec.InputOffset()) - len(value)
		}
	}
	t.Fatalf("%s has no %s", object, name)
	return 0
}

// FuzzReader: the pieces an answer comes in change nothing; without stripping the client gets the very bytes, with it
// those minus some events, from which nothing more would be stripped.
func FuzzReader(f *testing.F) {
	for _, fixture := range fixtures(f, "stream", "response", "error") {
		f.Add(fixture.body, uint64(1), true)
		f.Add(bytes.ReplaceAll(fixture.body, []byte("\n"), []byte("\r\n")), uint64(2), true)
		f.Add(bytes.ReplaceAll(fixture.body, []byte("\n"), []byte("\r")), uint64(3), false)
	}
	f.Fuzz(func(t *testing.T, answer []byte, seed uint64, strip bool) {
		rng := rand.New(rand.NewPCG(seed, 0))
		opt := ReaderOptions{StripUsage: strip}
		client, result := read(answer, opt)
		for _, cuts := range [][]int{everyByte(len(answer)), randomCuts(rng, len(answer))} {
			pieces, again := read(answer, opt, cuts...)
			if !bytes.Equal(pieces, client) {
				t.Fatalf("cuts %v: the client got\n%q, uncut\n%q", cuts, pieces, client)
			}
			if diff := cmp.Diff(result, again); diff != "" {
				t.Fatalf("cuts %v: %s", cuts, diff)
			}
		}
		if u := result.Usage; u.Input < 0 || u.Output < u.Reasoning || u.Input < u.CacheRead+u.CacheWrite || u.Total() < 0 {
			t.Fatalf("usage %+v", u)
		}
		if !strip && !bytes.Equal(client, answer) {
			t.Fatalf("the client got %q", client)
		}
		if !isSubsequence(client, answer) {
			t.Fatalf("the client got %q of %q", client, answer)
		}
		if twice, _ := read(client, opt); !bytes.Equal(twice, client) {
			t.Fatalf("stripped again %q becomes %q", client, twice)
		}
	})
}

func isSubsequence(part, whole []byte) bool {
	for _, c := range part {
		at := bytes.IndexByte(whole, c)
		if at < 0 {
			return false
		}
		whole = whole[at+1:]
	}
	return true
}

// FuzzFindEndpoint: only the exact paths are governed, slashes and queries aside.
func FuzzFindEndpoint(f *testing.F) {
	f.Add("POST", "/v1/chat/completions?x=1")
	f.Add("GET", "//v1//models//a/b")
	f.Fuzz(func(t *testing.T, method, path string) {
		e := FindEndpoint(method, path)
		if e.Governed != (e.Name != "") || e.Dialect == "" {
			t.Fatalf("%+v", e)
		}
		if e.Name == Chat && method != "POST" || e.Name == Models && method != "GET" {
			t.Fatalf("%s is %+v", method, e)
		}
	})
}
