package cache

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func chat(body string) Request {
	return Request{Endpoint: "chat", Model: "gpt-4o-mini", ScopeID: "team:search", Body: []byte(body)}
}

func key(t *testing.T, r Request) Key {
	t.Helper()
	before := bytes.Clone(r.Body)
	k, err := KeyOf(r)
	if err != nil {
		t.Fatalf("%s: %v", r.Body, err)
	}
	if !bytes.Equal(before, r.Body) {
		t.Fatalf("the body was changed to %s", r.Body)
	}
	return k
}

func TestKeyOfSame(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x\\n\u00e9", 2000)
	for _, tt := range []struct{ name, a, b string }{
		{"white space", `{"a":[1,{"b":2}]}`, " {\n\t\"a\" : [ 1 , { \"b\" : 2 } ] } "},
		{"order of members", `{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"a":1}`},
		{"escapes", `{"a":"\u0041\/é\n"}`, `{"a":"A/\u00e9\u000a"}`},
		{"escaped name", `{"\u0061":1}`, `{"a":1}`},
		{"1 and 1.0", `{"n":1}`, `{"n":1.0}`},
		{"exponents", `{"n":1500}`, `{"n":1.5e3}`},
		{"negative exponent", `{"n":0.25}`, `{"n":25E-2}`},
		{"zeros", `{"n":0}`, `{"n":0.000e5}`},
		{"long strings in either spelling", `{"a":"` + long + `"}`, `{"a":"` + strings.ReplaceAll(long, "x", `\u0078`) + `"}`},
		{"long objects in either order", `{"a":{"x":"` + long[:900] + `","y":"` + long[:900] + `","z":1}}`, `{"a":{"z":1,"y":"` + long[:900] + `","x":"` + long[:900] + `"}}`},
		{"what cannot change the answer", `{"a":1}`,
			`{"stream":true,"stream_options":{"include_usage":true},"user":"u","safety_identifier":"s","metadata":{"a":1},"store":false,"a":1}`},
		{"the body's own model", `{"model":"mini","a":1}`, `{"model":"gpt-4o-mini","a":1}`},
		{"LiteLLM's controls", `{"a":1}`, `{"a":1,"cache":{"no-cache":true,"ttl":5}}`},
		{"null store", `{"a":1}`, `{"a":1,"store":null}`},
		{"client tools", `{"tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"g"}}]}`,
			`{"tools":[{"function":{"name":"f"},"type":"function"},{"custom":{"name":"g"},"type":"custom"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if key(t, chat(tt.a)) != key(t, chat(tt.b)) {
				t.Errorf("%.80s and %.80s have different keys", tt.a, tt.b)
			}
		})
	}
}

func TestKeyOfDifferent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	for _, tt := range []struct{ name, a, b string }{
		{"large integers that are one float", `{"seed":9007199254740992}`, `{"seed":9007199254740993}`},
		{"large decimals that are one float", `{"n":0.1}`, `{"n":0.1000000000000000001}`},
		{"powers beyond a float", `{"n":1e400}`, `{"n":1e401}`},
		{"signs", `{"n":1}`, `{"n":-1}`},
		{"trailing zeros of an integer", `{"n":1}`, `{"n":10}`},
		{"number and string", `{"n":1}`, `{"n":"1"}`},
		{"null and absent", `{"n":null}`, `{}`},
		{"true and false", `{"n":true}`, `{"n":false}`},
		{"array order", `{"a":[1,2]}`, `{"a":[2,1]}`},
		{"nesting", `{"a":[[1],2]}`, `{"a":[[1,2]]}`},
		{"empty containers", `{"a":[]}`, `{"a":{}}`},
		{"name and value swapped", `{"a":"b"}`, `{"b":"a"}`},
		{"strings run together", `{"a":["bc","d"]}`, `{"a":["b","cd"]}`},
		{"an unknown member", `{"a":1}`, `{"a":1,"unknown":1}`},
		{"an excluded name further down counts", `{"a":{"user":"x"}}`, `{"a":{"user":"y"}}`},
		{"letter case of a name", `{"a":1}`, `{"A":1}`},
		{"the end of a long string", `{"a":"` + long + `1"}`, `{"a":"` + long + `2"}`},
		{"the end of a long array", `{"a":["` + long[:1000] + `","` + long[:1000] + `",1]}`, `{"a":["` + long[:1000] + `","` + long[:1000] + `",2]}`},
		{"LiteLLM's namespaces", `{"cache":{"namespace":"a"}}`, `{"cache":{"namespace":"b"}}`},
		{"a namespace and none", `{"cache":{"namespace":"a"}}`, `{"cache":{}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if key(t, chat(tt.a)) == key(t, chat(tt.b)) {
				t.Errorf("%.80s and %.80s have the same key", tt.a, tt.b)
			}
		})
	}
}

func TestKeyOfFields(t *testing.T) {
	t.Parallel()
	base := Request{Endpoint: "chat", Model: "m", ScopeID: "team:a", Variant: []string{"v"}, Body: []byte(`{}`)}
	seen := map[Key]string{}
	for _, tt := range []struct {
		name   string
		change func(*Request)
	}{
		{"base", func(*Request) {}},
		{"endpoint", func(r *Request) { r.Endpoint = "completions" }},
		{"model", func(r *Request) { r.Model = "n" }},
		{"scope", func(r *Request) { r.ScopeID = "team:b" }},
		{"no variant", func(r *Request) { r.Variant = nil }},
		{"an empty variant", func(r *Request) { r.Variant = []string{""} }},
		{"two variants", func(r *Request) { r.Variant = []string{"v", ""} }},
		{"fields run together", func(r *Request) { r.Endpoint, r.Model = "chatm", "" }},
		{"fields run together the other way", func(r *Request) { r.Endpoint, r.Model = "", "chatm" }},
	} {
		r := base
		tt.change(&r)
		k := key(t, r)
		if other, ok := seen[k]; ok {
			t.Errorf("%s and %s have the same key", tt.name, other)
		}
		seen[k] = tt.name
	}
}

func TestKeyOfErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body  string
		uncacheable bool
	}{
		{"background", `{"background":true}`, true},
		{"stored answer", `{"store":true}`, true},
		{"previous response", `{"previous_response_id":"r"}`, true},
		{"conversation", `{"conversation":{"id":"c"}}`, true},
		{"stored prompt", `{"prompt":{"id":"p"}}`, true},
		{"web search", `{"web_search_options":{}}`, true},
		{"provider's tool of the Responses API", `{"tools":[{"type":"web_search"}]}`, true},
		{"one provider's tool among others", `{"tools":[{"type":"function"},{"type":"mcp","server_url":"x"}]}`, true},
		{"provider's tool of Anthropic", `{"tools":[{"name":"web_search","type":"web_search_20250305"}]}`, true},
		{"provider's tool of Gemini", `{"tools":[{"functionDeclarations":[]},{"googleSearch":{}}]}`, true},
		{"provider's tool of Bedrock", `{"toolConfig":{"tools":[{"toolSpec":{}},{"systemTool":{"name":"nova_grounding"}}]}}`, true},
		{"tools that are no list", `{"tools":"all"}`, true},
		{"mcp servers", `{"mcp_servers":[{"url":"x"}]}`, true},
		{"container", `{"container":"c"}`, true},
		{"escaped name", `{"b\u0061ckground":true}`, true},
		{"blanks before the value", "{\"background\" :\n true}", true},
		{"array", `[]`, false},
		{"string", `"x"`, false},
		{"empty", ``, false},
		{"truncated", `{"a":[1,2`, false},
		{"trailing data", `{} {}`, false},
		{"duplicate member", `{"a":1,"a":2}`, false},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", false},
		{"exponent out of all bounds", `{"a":1e99999999999}`, false},
		{"depth bomb", `{"a":` + strings.Repeat("[", 100000), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := KeyOf(chat(tt.body))
			if err == nil || errors.Is(err, ErrUncacheable) != tt.uncacheable {
				t.Errorf("error %v, uncacheable should be %v", err, tt.uncacheable)
			}
		})
	}
}

func TestKeyOfHarmless(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, body string }{
		{"background false", `{"background":false}`},
		{"null previous response", `{"previous_response_id":null,"conversation":null,"web_search_options":null,"tools":null,"container":null}`},
		{"text prompt", `{"prompt":"x"}`},
		{"token prompt", `{"prompt":[1,2]}`},
		{"no mcp servers", `{"mcp_servers":[]}`},
		{"tool of Anthropic without a type", `{"tools":[{"name":"f","input_schema":{}}]}`},
		{"tools of Gemini", `{"tools":[{"functionDeclarations":[]},{"function_declarations":[]}],"toolConfig":{"functionCallingConfig":{}}}`},
		{"tools of Bedrock", `{"toolConfig":{"tools":[{"toolSpec":{}},{"cachePoint":{}}]}}`},
		{"the words elsewhere", `{"messages":[{"background":true,"store":true}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			key(t, chat(tt.body))
		})
	}
}

func TestRedisName(t *testing.T) {
	t.Parallel()
	k := Key{0xab, 1}
	if got, want := k.Redis("tg"), "tg:c:ab01"+strings.Repeat("0", 60); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestKeyOfIsStable pins the derivation: a change that moves keys must also change keyVersion.
func TestKeyOfIsStable(t *testing.T) {
	t.Parallel()
	got := key(t, chat(`{"messages":[{"role":"user","content":"hi"}],"temperature":0.5}`)).Redis("tg")
	if want := "tg:c:29b1f2fa399a8312c7e0457547e5a0f1b58719ab8615215dc62ff9e0d396ecdb"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// reference is a slow, plain statement of when two values mean the same.
func reference(n *node) string {
	switch n.kind {
	case '{':
		var parts []string
		for _, m := range n.members {
			parts = append(parts, fmt.Sprintf("%q:%s", m.name, reference(m.value)))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	case '[':
		var parts []string
		for _, item := range n.items {
			parts = append(parts, reference(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case '"':
		return fmt.Sprintf("%q", n.text)
	case '0':
		r, ok := new(big.Rat).SetString(string(n.text))
		if !ok {
			return "?"
		}
		sign := ""
		if n.text[0] == '-' {
			sign = "-"
		}
		return sign + r.Abs(r).RatString()
	}
	return string(n.text)
}

// FuzzKeyOf: two bodies have one key exactly when they mean the same; formatting alone never matters.
func FuzzKeyOf(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":[1.0,"x",null,{"c":1e2}]}`), []byte(`{"b":[1,"\u0078",null,{"c":100}],"a":1}`))
	f.Add([]byte(`{"n":9007199254740993}`), []byte(`{"n":9007199254740992}`))
	f.Add([]byte(`{"a":"`+strings.Repeat("y", 3000)+`"}`), []byte(`{"a":["`+strings.Repeat("y", 1500)+`"]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		// Names without meaning for the cache, and numbers that big.Rat can hold.
		wrap := func(v []byte) []byte { return slices.Concat([]byte(`{"x":`), v, []byte(`}`)) }
		na, errA := parseNode(wrap(a))
		nb, errB := parseNode(wrap(b))
		if errA != nil || errB != nil || bytes.ContainsAny(slices.Concat(a, b), "eE") {
			return
		}
		ka, errA := KeyOf(chat(string(wrap(a))))
		kb, errB := KeyOf(chat(string(wrap(b))))
		if errA != nil || errB != nil {
			t.Fatalf("%v, %v for valid JSON", errA, errB)
		}
		if same := reference(na) == reference(nb); same != (ka == kb) {
			t.Fatalf("%s and %s: same meaning %v, same key %v", a, b, same, ka == kb)
		}
		indented := jsontext.Value(wrap(a)).Clone()
		if err := indented.Indent(jsontext.ReorderRawObjects(true)); err != nil {
			t.Fatal(err)
		}
		if k, err := KeyOf(chat(string(indented))); err != nil || k != ka {
			t.Fatalf("%s: key changes with the format: %v", a, err)
		}
	})
}

func BenchmarkKeyOf(b *testing.B) {
	small := `{"model":"m","messages":[{"role":"system","content":"` + strings.Repeat("be brief ", 100) + `"},{"role":"user","content":"hi\nthere"}],"temperature":0.7,"max_tokens":100}`
	image := `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("QUJD", 2<<20) + `"}}]}]}`
	deep := `{"a":` + strings.Repeat(`{"z":1,"a":`, 5000) + `[` + strings.Repeat("1,", 1<<20) + `1]` + strings.Repeat("}", 5001)
	for _, bb := range []struct{ name, body string }{{"2KB", small}, {"8MB image", image}, {"unsorted at each of 5000 levels over 2MB", deep}} {
		b.Run(bb.name, func(b *testing.B) {
			r := chat(bb.body)
			b.SetBytes(int64(len(r.Body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := KeyOf(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
