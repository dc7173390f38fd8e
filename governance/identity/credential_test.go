package identity

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// headers are pairs of name and value, in the order in which the client sent them.
type headers [][2]string

func (h headers) Values(name string) []string {
	var vs []string
	for _, p := range h {
		if p[0] == name {
			vs = append(vs, p[1])
		}
	}
	return vs
}

const (
	keyA  = "sk-test-a"
	jwt   = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln_bmF0-dXJl"
	oauth = "sk-ant-oat01-abc"
)

func TestFindCredential(t *testing.T) {
	t.Parallel()
	configured := Rules{KeyHeaders: []string{"x-tollgate-key", "x-litellm-api-key"}}
	long := strings.Repeat("k", MaxSecret+1)
	for _, tt := range []struct {
		name   string
		in     headers
		rules  Rules
		secret string // found; empty when refused
		header string
		reason refusal.Reason
	}{
		{name: "bearer", in: headers{{"authorization", "Bearer sk-test-a"}}, secret: keyA, header: "authorization"},
		{name: "lower-case scheme", in: headers{{"authorization", "bearer sk-test-a"}}, secret: keyA, header: "authorization"},
		{name: "upper-case scheme, stray blanks", in: headers{{"authorization", "BEARER  sk-test-a "}}, secret: keyA, header: "authorization"},
		{name: "tab and outer blanks", in: headers{{"authorization", " \tBearer\tsk-test-a\t"}}, secret: keyA, header: "authorization"},
		{name: "keys are case sensitive", in: headers{{"authorization", "Bearer SK-TEST-A"}}, secret: "SK-TEST-A", header: "authorization"},
		{name: "x-api-key", in: headers{{"x-api-key", keyA}}, secret: keyA, header: "x-api-key"},
		{name: "api-key with blanks", in: headers{{"api-key", " " + keyA + " "}}, secret: keyA, header: "api-key"},
		{name: "x-goog-api-key", in: headers{{"x-goog-api-key", keyA}}, secret: keyA, header: "x-goog-api-key"},
		{name: "both headers, equal", in: headers{{"authorization", "Bearer " + keyA}, {"x-api-key", keyA}}, secret: keyA, header: "x-api-key"},
		{name: "a JWT without another header is the candidate", in: headers{{"authorization", "Bearer " + jwt}}, secret: jwt, header: "authorization"},
		{name: "a JWT beside a key is none", in: headers{{"authorization", "Bearer " + jwt}, {"x-api-key", keyA}}, secret: keyA, header: "x-api-key"},
		{name: "an OAuth token beside a key is none", in: headers{{"authorization", "Bearer " + oauth}, {"x-api-key", keyA}}, secret: keyA, header: "x-api-key"},
		{name: "an OAuth token alone", in: headers{{"authorization", "Bearer " + oauth}}, secret: oauth, header: "authorization"},
		{name: "an OAuth token beside an empty header", in: headers{{"authorization", "Bearer " + oauth}, {"x-api-key", " "}}, secret: oauth, header: "authorization"},
		{name: "basic beside a key is none", in: headers{{"authorization", "Basic c2VjcmV0"}, {"x-api-key", keyA}}, secret: keyA, header: "x-api-key"},
		{name: "an over-long JWT beside a key", in: headers{{"authorization", "Bearer eyJ" + long + ".a.b"}, {"x-api-key", keyA}}, secret: keyA, header: "x-api-key"},
		{name: "the longest", in: headers{{"api-key", long[1:]}}, secret: long[1:], header: "api-key"},
		{name: "same header twice, equal", in: headers{{"api-key", keyA}, {"api-key", keyA}}, secret: keyA, header: "api-key"},

		{name: "a key header is the only one looked at", in: headers{{"x-tollgate-key", keyA}, {"authorization", "Bearer other"}, {"x-api-key", "third"}},
			rules: configured, secret: keyA, header: "x-tollgate-key"},
		{name: "a key header may carry the scheme", in: headers{{"x-litellm-api-key", "Bearer " + keyA}}, rules: configured, secret: keyA, header: "x-litellm-api-key"},
		{name: "no key header present", in: headers{{"authorization", "Bearer " + keyA}}, rules: configured, secret: keyA, header: "authorization"},
		{name: "an empty key header hides the others", in: headers{{"x-tollgate-key", ""}, {"authorization", "Bearer " + keyA}}, rules: configured, reason: refusal.NoCredential},
		{name: "two key headers, different", in: headers{{"x-tollgate-key", keyA}, {"x-litellm-api-key", "b"}}, rules: configured, reason: refusal.Ambiguous},

		{name: "query on a Gemini path", rules: Rules{GeminiQuery: "alt=sse&key=sk-test%2Da"}, secret: keyA, header: "?key"},
		{name: "query and header, different", in: headers{{"x-goog-api-key", "b"}}, rules: Rules{GeminiQuery: "key=" + keyA}, reason: refusal.Ambiguous},
		{name: "two keys in the query", rules: Rules{GeminiQuery: "key=a&key=b"}, reason: refusal.Ambiguous},
		{name: "an empty key in the query", rules: Rules{GeminiQuery: "key="}, reason: refusal.NoCredential},

		{name: "nothing", reason: refusal.NoCredential},
		{name: "no scheme", in: headers{{"authorization", keyA}}, reason: refusal.NoCredential},
		{name: "scheme grown together with the key", in: headers{{"authorization", "Bearer" + keyA}}, reason: refusal.NoCredential},
		{name: "basic", in: headers{{"authorization", "Basic " + keyA}}, reason: refusal.NoCredential},
		{name: "empty bearer", in: headers{{"authorization", "Bearer "}}, reason: refusal.NoCredential},
		{name: "bare scheme", in: headers{{"authorization", "Bearer"}}, reason: refusal.NoCredential},
		{name: "empty authorization", in: headers{{"authorization", ""}}, reason: refusal.NoCredential},
		{name: "empty x-api-key", in: headers{{"x-api-key", ""}}, reason: refusal.NoCredential},
		{name: "both headers, different", in: headers{{"authorization", "Bearer " + keyA}, {"x-api-key", "b"}}, reason: refusal.Ambiguous},
		{name: "two authorization headers, equal", in: headers{{"authorization", "Bearer " + keyA}, {"authorization", "Bearer " + keyA}}, reason: refusal.Ambiguous},
		{name: "two authorization headers beside a key", in: headers{{"authorization", "Bearer " + jwt}, {"authorization", "Basic x"}, {"x-api-key", keyA}}, reason: refusal.Ambiguous},
		{name: "authorization joined by a proxy", in: headers{{"authorization", "Bearer " + keyA + ", Bearer b"}}, reason: refusal.UnknownKey},
		{name: "same header twice, different", in: headers{{"api-key", keyA}, {"api-key", "b"}}, reason: refusal.Ambiguous},
		{name: "over-long", in: headers{{"authorization", "Bearer " + long}}, reason: refusal.UnknownKey},
		{name: "control character", in: headers{{"x-api-key", "a\x00b"}}, reason: refusal.UnknownKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, refused := FindCredential(tt.in, tt.rules)
			if tt.reason != "" {
				if refused == nil || refused.Reason != tt.reason {
					t.Fatalf("refusal %v, want %s", refused, tt.reason)
				}
				if refused.Status(0) != http.StatusUnauthorized {
					t.Errorf("status %d, want 401", refused.Status(0))
				}
				if got != (Credential{}) {
					t.Errorf("a credential beside the refusal: %v", got)
				}
				for _, h := range tt.in {
					if len(h[1]) > 8 && strings.Contains(refused.Describe(), h[1]) {
						t.Errorf("the message holds what the client sent: %s", refused.Describe())
					}
				}
				return
			}
			if refused != nil {
				t.Fatalf("refused: %v", refused)
			}
			if want := (Credential{sha256.Sum256([]byte(tt.secret)), tt.header}); got != want {
				t.Errorf("found %s in %q, want the hash of %.20q in %q", got.Header, got.Header, tt.secret, tt.header)
			}
		})
	}
}

func TestCredentialHeaders(t *testing.T) {
	t.Parallel()
	got := CredentialHeaders(Rules{KeyHeaders: []string{"x-tollgate-key", "api-key"}})
	want := []string{"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-tollgate-key"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestStripQuery(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"none", "alt=sse", "alt=sse"},
		{"alone", "key=secret", ""},
		{"between", "alt=sse&key=secret&x=%20", "alt=sse&x=%20"},
		{"twice", "key=a&key=b&c", "c"},
		{"encoded name", "k%65y=secret&a=1", "a=1"},
		{"other letter case is another parameter", "Key=a", "Key=a"},
		{"a name that only begins with it", "keys=a", "keys=a"},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := StripQuery(tt.in); got != tt.want {
				t.Errorf("StripQuery(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

// FuzzFindCredential: exactly one of credential and refusal; a refusal is 401; the stripped query holds no key.
func FuzzFindCredential(f *testing.F) {
	f.Add("Bearer a", "b", "c", "key=d")
	f.Add("bearer "+jwt, keyA, "", "")
	f.Add("\tBEARER \xff", "", "\x00", "k%65y=%zz&key=%")
	f.Fuzz(func(t *testing.T, authorization, apiKey, own, query string) {
		h := headers{{"authorization", authorization}, {"x-api-key", apiKey}}
		if own != "" {
			h = append(h, [2]string{"x-own", own})
		}
		c, refused := FindCredential(h, Rules{KeyHeaders: []string{"x-own"}, GeminiQuery: query})
		if (refused == nil) == (c == Credential{}) {
			t.Fatalf("credential %v and refusal %v", c, refused)
		}
		if refused != nil && refused.Status(0) != http.StatusUnauthorized {
			t.Fatalf("status %d", refused.Status(0))
		}
		if refused == nil && own != "" && c.Header != "x-own" {
			t.Fatalf("found in %s although the configured header is there", c.Header)
		}
		if left := queryKeys(StripQuery(query)); len(left) != 0 {
			t.Fatalf("StripQuery(%q) leaves %d keys", query, len(left))
		}
	})
}

func BenchmarkFindCredential(b *testing.B) {
	h := fixedHeaders{"Bearer sk-tg-0123456789abcdefghijklmnopqrstuv012345"}
	b.ReportAllocs()
	for b.Loop() {
		if _, refused := FindCredential(h, Rules{}); refused != nil {
			b.Fatal(refused)
		}
	}
}

// fixedHeaders has an authorization header and allocates nothing.
type fixedHeaders []string

func (h fixedHeaders) Values(name string) []string {
	if name == "authorization" {
		return h
	}
	return nil
}
