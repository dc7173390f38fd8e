package usage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var defaultSources = Sources{EndUser: []string{"safety_identifier", "user", "metadata.user_id"}}

// parse fails the test when the body is refused.
func parse(t testing.TB, body string) *Request {
	t.Helper()
	r, err := ParseChat([]byte(body), defaultSources)
	if err != nil {
		t.Fatalf("ParseChat(%.200s): %v", body, err)
	}
	return r
}

func TestParseChatFixtures(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures(t, "request") {
		t.Run(f.File, func(t *testing.T) {
			t.Parallel()
			r := parse(t, string(f.body))
			got := fixture{
				Model: r.Model, Stream: r.Stream, OutputCap: r.OutputCap, Choices: r.Choices, EndUser: r.EndUser,
				IncludeUsage: r.IncludeUsage,
			}
			want := fixture{
				Model: f.Model, Stream: f.Stream, OutputCap: f.OutputCap, Choices: max(f.Choices, 1), EndUser: f.EndUser,
				IncludeUsage: f.IncludeUsage,
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(fixture{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseChatFields(t *testing.T) {
	t.Parallel()
	base := Request{Model: "m", Choices: 1}
	with := func(change func(*Request)) Request {
		r := base
		change(&r)
		return r
	}
	for _, tt := range []struct {
		name, members string // after "model"
		want          Request
	}{
		{"bare", ``, base},
		{"nulls", `,"stream":null,"n":null,"max_tokens":null,"max_completion_tokens":null,"stream_options":null,"user":null,
			"service_tier":null,"store":null,"web_search_options":null,"tools":null,"previous_response_id":null,"cache":null`, base},
		{"stream", `,"stream":true,"stream_options":{"include_usage":true}`,
			with(func(r *Request) { r.Stream, r.IncludeUsage = true, true })},
		{"cap", `,"max_completion_tokens":7`, with(func(r *Request) { r.OutputCap = 7 })},
		{"old cap", `,"max_tokens":9`, with(func(r *Request) { r.OutputCap = 9 })},
		{"both caps", `,"max_tokens":9,"max_completion_tokens":7`, with(func(r *Request) { r.OutputCap = 9 })},
		{"one cap is none", `,"max_tokens":-9,"max_completion_tokens":7`, with(func(r *Request) { r.OutputCap = 7 })},
		{"cap zero", `,"max_tokens":0`, base},
		{"cap minus zero", `,"max_tokens":-0`, base},
		{"cap negative", `,"max_tokens":-99999999999999999999999`, base},
		{"cap beyond int64", `,"max_tokens":99999999999999999999999`, with(func(r *Request) { r.OutputCap = MaxTokens })},
		{"n", `,"n":3`, with(func(r *Request) { r.Choices = 3 })},
		{"n zero", `,"n":0`, base},
		{"n negative", `,"n":-4`, base},
		{"n beyond int64", `,"n":99999999999999999999999`, with(func(r *Request) { r.Choices = MaxChoices })},
		{"tier", `,"service_tier":"flex"`, with(func(r *Request) { r.ServiceTier = "flex" })},
		{"tier auto", `,"service_tier":"auto"`, base},
		{"store", `,"store":true`, with(func(r *Request) { r.Uncacheable = true })},
		{"not stored", `,"store":false,"background":false`, base},
		{"web search", `,"web_search_options":{}`, with(func(r *Request) { r.Uncacheable = true })},
		{"earlier answer", `,"previous_response_id":"r"`, with(func(r *Request) { r.Uncacheable = true })},
		{"xai search", `,"search_parameters":{"mode":"on"}`, with(func(r *Request) { r.Uncacheable = true })},
		{"cache controls", `,"cache":{"no-cache":true,"no-store":false,"ttl":60,"s-maxage":1.5,"namespace":"x","use-cache":null}`,
			with(func(r *Request) {
				r.Cache = CacheControl{NoCache: true, TTL: time.Minute, MaxAge: 1500 * time.Millisecond, HasMaxAge: true}
			})},
		{"cache for no time", `,"cache":{"ttl":0,"s-max-age":0}`,
			with(func(r *Request) { r.Cache = CacheControl{NoStore: true, HasMaxAge: true} })},
		{"cache for ever", `,"cache":{"ttl":1e300}`, with(func(r *Request) { r.Cache.TTL = 1<<63 - 1 })},
		{"somebody else's cache", `,"cache":true`, base},
		{"unknown members in any case", `,"Temperature":1,"x":{"model":1,"MODEL":2},"été":1,"N2":1`, base},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := parse(t, `{"model":"m"`+tt.members+`}`)
			if diff := cmp.Diff(tt.want, *got, cmpopts.IgnoreUnexported(Request{}), cmpopts.IgnoreFields(Request{}, "InputTokens")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseChatProviderTools(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, tools string
		want        bool
	}{
		{"none", `[]`, false},
		{"functions of the client", `[{"type":"function","function":{"name":"f"}},{"type":"custom"}]`, false},
		{"search", `[{"type":"function"},{"type":"web_search"}]`, true},
		{"escaped name", `[{"typ\u0065":"code_interpreter"}]`, true},
		{"escaped type", `[{"type":"\u0066unction"}]`, false},
		{"no array", `{"type":"web_search"}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := parse(t, `{"model":"m","tools":`+tt.tools+`}`).Uncacheable; got != tt.want {
				t.Errorf("Uncacheable = %t, want %t", got, tt.want)
			}
		})
	}
}

func TestParseChatEndUser(t *testing.T) {
	t.Parallel()
	header := func(name string) string { return map[string]string{"x-user": "from-header"}[name] }
	for _, tt := range []struct {
		name    string
		sources []string
		body    string
		want    string
	}{
		{"first source wins whatever the order in the body", []string{"safety_identifier", "user"},
			`{"user":"b","model":"m","safety_identifier":"a"}`, "a"},
		{"empty and null are no value", []string{"safety_identifier", "user", "metadata.user_id"},
			`{"safety_identifier":"","user":null,"metadata":{"user_id":"c"},"model":"m"}`, "c"},
		{"deep path", []string{"a.b.c"}, `{"a":{"x":{"c":"no"},"b":{"c":"yes"}},"model":"m"}`, "yes"},
		{"path through a string", []string{"a.b.c"}, `{"a":{"b":"{\"c\":1}"},"model":"m"}`, ""},
		{"escaped", []string{"user"}, `{"us\u0065r":"\u00e9","model":"m"}`, "é"},
		{"number", []string{"metadata.user_id"}, `{"metadata":{"user_id":12},"model":"m"}`, "12"},
		{"session is dropped", []string{"metadata.user_id"},
			`{"metadata":{"user_id":"user_1_account_2_session_3-4"},"model":"m"}`, "user_1_account_2"},
		{"only a session", []string{"user"}, `{"user":"_session_3","model":"m"}`, "_session_3"},
		{"header first", []string{"X-User", "user"}, `{"user":"b","model":"m"}`, "from-header"},
		{"header second", []string{"user", "x-user"}, `{"user":"b","model":"m"}`, "b"},
		{"header absent", []string{"x-other", "user"}, `{"user":"b","model":"m"}`, "b"},
		{"a member named like a header", []string{"x-other"}, `{"x-other":"b","model":"m"}`, ""},
		{"no sources", nil, `{"user":"b","model":"m"}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := ParseChat([]byte(tt.body), Sources{EndUser: tt.sources, Header: header})
			if err != nil {
				t.Fatal(err)
			}
			if r.EndUser != tt.want {
				t.Errorf("EndUser = %q, want %q", r.EndUser, tt.want)
			}
		})
	}
}

func TestParseChatMalformed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body, param string
	}{
		{"empty", ``, ""},
		{"blank", " \n", ""},
		{"array", `[{"model":"m"}]`, ""},
		{"string", `"model"`, ""},
		{"cut", `{"model":"m","messages":[`, ""},
		{"cut behind a name", `{"model"`, ""},
		{"trailing comma", `{"model":"m",}`, ""},
		{"two bodies", `{"model":"m"}{"model":"n"}`, ""},
		{"garbage behind", `{"model":"m"} x`, ""},
		{"byte order mark", "\xEF\xBB\xBF" + `{"model":"m"}`, ""},
		{"name is no string", `{model:"m"}`, ""},
		{"duplicate", `{"model":"m","messages":[],"model":"n"}`, "model"},
		{"duplicate escaped", `{"model":"m","mod\u0065l":"n"}`, "model"},
		{"duplicate of an unknown name", `{"model":"m","x":1,"x":2}`, ""},
		{"duplicate below", `{"model":"m","messages":[{"content":"a","content":"b"}]}`, "messages"},
		{"letter case", `{"model":"m","Model":"n"}`, ""},
		{"letter case first", `{"MODEL":"m","model":"n"}`, ""},
		{"long s", `{"model":"m","me\u017f\u017fages":[]}`, ""},
		{"kelvin sign", `{"model":"m","bac\u212aground":true}`, ""},
		{"letter case of the options", `{"model":"m","stream":true,"stream_options":{"Include_Usage":true}}`, "stream_options.include_usage"},
		{"invalid utf-8", "{\"model\":\"\xC3\x28\"}", "model"},
		{"lone surrogate", `{"model":"\ud800"}`, "model"},
		{"no model", `{"messages":[]}`, "model"},
		{"model null", `{"model":null}`, "model"},
		{"model number", `{"model":1}`, "model"},
		{"model empty", `{"model":""}`, "model"},
		{"model with a line feed", `{"model":"m\nx-admin: 1"}`, "model"},
		{"model of great length", `{"model":"` + strings.Repeat("m", 1025) + `"}`, "model"},
		{"messages string", `{"model":"m","messages":"hi"}`, "messages"},
		{"messages null", `{"model":"m","messages":null}`, "messages"},
		{"stream string", `{"model":"m","stream":"true"}`, "stream"},
		{"stream number", `{"model":"m","stream":1}`, "stream"},
		{"options array", `{"model":"m","stream_options":[]}`, "stream_options"},
		{"include_usage string", `{"model":"m","stream_options":{"include_usage":"no"}}`, "stream_options.include_usage"},
		{"cap string", `{"model":"m","max_tokens":"512"}`, "max_tokens"},
		{"cap fraction", `{"model":"m","max_completion_tokens":512.5}`, "max_completion_tokens"},
		{"cap exponent", `{"model":"m","max_tokens":1e400}`, "max_tokens"},
		{"cap negative exponent", `{"model":"m","max_tokens":-1e400}`, "max_tokens"},
		{"cap object", `{"model":"m","max_tokens":{}}`, "max_tokens"},
		{"n string", `{"model":"m","n":"2"}`, "n"},
		{"n boolean", `{"model":"m","n":true}`, "n"},
		{"tier object", `{"model":"m","service_tier":{}}`, "service_tier"},
		{"user object", `{"model":"m","user":{}}`, "user"},
		{"user boolean", `{"model":"m","metadata":{"user_id":true}}`, "metadata.user_id"},
		{"user of great length", `{"model":"m","user":"` + strings.Repeat("u", 257) + `"}`, "user"},
		{"no-cache string", `{"model":"m","cache":{"no-cache":"yes"}}`, "cache.no-cache"},
		{"no-store number", `{"model":"m","cache":{"no-store":1}}`, "cache.no-store"},
		{"ttl string", `{"model":"m","cache":{"ttl":"60"}}`, "cache.ttl"},
		{"ttl negative", `{"model":"m","cache":{"ttl":-1}}`, "cache.ttl"},
		{"age boolean", `{"model":"m","cache":{"s-maxage":true}}`, "cache.s-maxage"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := ParseChat([]byte(tt.body), defaultSources)
			bad, ok := errors.AsType[*MalformedError](err)
			if !ok {
				t.Fatalf("ParseChat = %+v, %v, want a *MalformedError", r, err)
			}
			if bad.Param != tt.param {
				t.Errorf("Param = %q (%s), want %q", bad.Param, bad.Message, tt.param)
			}
			if bad.Message == "" || !strings.Contains(bad.Message, tt.param[strings.LastIndex(tt.param, ".")+1:]) &&
				!strings.Contains(bad.Message, "at byte") {
				t.Errorf("the message %q neither names %q nor a place", bad.Message, tt.param)
			}
		})
	}
}

func TestParseChatHostile(t *testing.T) {
	t.Parallel()
	passes := map[string]Request{ // whatever is not listed is refused
		"hostile/max_tokens_negative.json": {OutputCap: 0, Choices: 1},
		"hostile/max_tokens_huge.json":     {OutputCap: MaxTokens, Choices: 1},
		"hostile/n_huge.json":              {OutputCap: 100, Choices: 1_000_000},
	}
	for _, f := range fixtures(t, "hostile") {
		t.Run(f.File, func(t *testing.T) {
			t.Parallel()
			r, err := ParseChat(f.body, defaultSources)
			want, pass := passes[f.File]
			if !pass {
				if _, ok := errors.AsType[*MalformedError](err); !ok {
					t.Fatalf("ParseChat = %+v, %v, want a *MalformedError", r, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.OutputCap != want.OutputCap || r.Choices != want.Choices {
				t.Errorf("cap %d, choices %d, want %d, %d", r.OutputCap, r.Choices, want.OutputCap, want.Choices)
			}
			if product := r.OutputCap * r.Choices; product < 0 {
				t.Errorf("cap x choices = %d", product)
			}
		})
	}
}

// The largest cap of the largest n still is a number of tokens.
func TestBoundsMultiply(t *testing.T) {
	t.Parallel()
	r := parse(t, `{"model":"m","n":99999999999999999999,"max_tokens":99999999999999999999}`)
	if total := r.Choices * r.OutputCap; total/r.Choices != r.OutputCap {
		t.Errorf("%d x %d overflows", r.Choices, r.OutputCap)
	}
}

func TestParseChatCrowded(t *testing.T) {
	t.Parallel()
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"x%d":":"`, i)
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, body string
		refused    bool
	}{
		{"many", `{"model":"m"` + names(maxMembers-1) + `}`, false},
		{"too many", `{"model":"m"` + names(maxMembers) + `}`, true},
		{"too many below", `{"model":"m","messages":[{"a":{"b":[1` + strings.Repeat(",1", 10) + `]` + names(maxMembers) + `}}]}`, true},
		{"many objects", `{"model":"m","messages":[{}` + strings.Repeat(`,{"role":"user","content":"{\"a\":1}"}`, maxMembers) + `]}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseChat([]byte(tt.body), defaultSources)
			if (err != nil) != tt.refused {
				t.Fatalf("ParseChat: %v, want refused %t", err, tt.refused)
			}
			if tt.refused && !strings.Contains(err.Error(), "more than 10000 members") {
				t.Errorf("refused by %v", err)
			}
		})
	}
	if _, err := ParseChat([]byte(strings.Repeat(`{"a":`, 20_000)), defaultSources); err == nil {
		t.Error("a body of depth 20000 passes")
	}
}
