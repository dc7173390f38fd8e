package identity

import (
	"crypto/sha256"
	"net/url"
	"slices"
	"strings"

	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// Headers are the headers of a request. Values returns every value of a header, by its lower-case name; a header that
// is not there has none.
type Headers interface {
	Values(name string) []string
}

// Rules say where a request's credential may be.
type Rules struct {
	// KeyHeaders are the headers of auth.key_headers, in lower case. When one is present, no other place is looked at.
	KeyHeaders []string
	// GeminiQuery is the raw query of the request when its path is a Gemini one, where "key" may carry the credential;
	// empty on every other path.
	GeminiQuery string
}

// Credential is what a client presented. It never holds the secret.
type Credential struct {
	Sum    [sha256.Size]byte // SHA-256 of the whole secret
	Header string            // where it was found: a header's lower-case name, or "?key"
}

// MaxSecret is the length of the longest credential that is looked at, in bytes; JWTs of large identity providers stay
// below it. A longer one is refused before any work is done for it.
const MaxSecret = 8 << 10

// queryParameter is the name of Gemini's query parameter for keys, and queryHeader how a Credential names it.
const (
	queryParameter = "key"
	queryHeader    = "?key"
)

// secretHeaders are where clients put a bare secret: Anthropic, Azure, Gemini.
var secretHeaders = []string{"x-api-key", "api-key", "x-goog-api-key"}

// candidate is a secret that might be the credential. It does not outlive FindCredential.
type candidate struct {
	header, secret string
}

// FindCredential finds the one credential of a request by shape and header, never by trying which one works. The
// refusal is nil exactly when there is one: none is NoCredential, several different ones are Ambiguous.
func FindCredential(h Headers, rules Rules) (Credential, *refusal.Refusal) {
	var room [8]candidate
	found, exclusive, refused := keyHeaderCandidates(room[:0], h, rules.KeyHeaders)
	if refused == nil && !exclusive {
		found, refused = usualCandidates(found, h, rules.GeminiQuery)
	}
	if refused != nil {
		return Credential{}, refused
	}
	return choose(found)
}

// keyHeaderCandidates collects from the configured headers. exclusive is true when one of them is present, even empty.
func keyHeaderCandidates(dst []candidate, h Headers, names []string) (found []candidate, exclusive bool, refused *refusal.Refusal) {
	for _, name := range names {
		for _, v := range h.Values(name) {
			exclusive = true
			v = trimBlanks(v)
			if bearer, ok := cutBearer(v); ok {
				v = bearer
			}
			if v != "" {
				dst = append(dst, candidate{name, v})
			}
		}
	}
	if exclusive && len(dst) == 0 {
		return nil, true, &refusal.Refusal{Reason: refusal.NoCredential, Message: "the API key header is empty"}
	}
	return dst, exclusive, nil
}

// usualCandidates collects from the places that the providers' clients use.
func usualCandidates(dst []candidate, h Headers, query string) ([]candidate, *refusal.Refusal) {
	for _, name := range secretHeaders {
		for _, v := range h.Values(name) {
			if v = trimBlanks(v); v != "" {
				dst = append(dst, candidate{name, v})
			}
		}
	}
	if secrets := queryKeys(query); len(secrets) > 0 {
		for _, v := range secrets {
			dst = append(dst, candidate{queryHeader, v})
		}
	}
	authorization := h.Values("authorization")
	if len(authorization) > 1 {
		// Two are refused even when equal: proxies disagree about which one counts.
		return nil, &refusal.Refusal{Reason: refusal.Ambiguous, Message: "the request has more than one authorization header; send exactly one"}
	}
	if len(authorization) == 0 {
		return dst, nil
	}
	bearer, ok := cutBearer(trimBlanks(authorization[0]))
	switch {
	case !ok || bearer == "":
		if len(dst) == 0 {
			return nil, &refusal.Refusal{Reason: refusal.NoCredential, Message: `the authorization header must be "Bearer <key>"`}
		}
	case len(dst) > 0 && (isJWT(bearer) || isAnthropicOAuth(bearer)):
		// A client that is logged in elsewhere sends its own token beside our key.
	default:
		dst = append(dst, candidate{"authorization", bearer})
	}
	return dst, nil
}

// choose hashes the candidates and takes the one that they all are.
func choose(found []candidate) (Credential, *refusal.Refusal) {
	if len(found) == 0 {
		return Credential{}, &refusal.Refusal{Reason: refusal.NoCredential}
	}
	var chosen Credential
	for i, c := range found {
		if len(c.secret) > MaxSecret {
			return Credential{}, &refusal.Refusal{Reason: refusal.UnknownKey, Message: "the API key is too long to be one"}
		}
		if !printable(c.secret) {
			return Credential{}, &refusal.Refusal{Reason: refusal.UnknownKey, Message: "the API key contains blanks or control characters"}
		}
		sum := sha256.Sum256([]byte(c.secret))
		switch {
		case i == 0:
			chosen = Credential{Sum: sum, Header: c.header}
		case sum != chosen.Sum:
			return Credential{}, &refusal.Refusal{
				Reason:  refusal.Ambiguous,
				Message: "the request carries different API keys in " + chosen.Header + " and " + c.header + "; send exactly one",
			}
		}
	}
	return chosen, nil
}

// CredentialHeaders are all headers that may carry a credential, in lower case: none of them goes upstream.
func CredentialHeaders(rules Rules) []string {
	all := append([]string{"authorization"}, secretHeaders...)
	for _, name := range rules.KeyHeaders {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// queryKeys are the non-empty values of "key" in a raw query.
func queryKeys(query string) []string {
	var found []string
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); isQueryKey(name) {
			if v, err := url.QueryUnescape(value); err == nil {
				value = v // else the raw text: no key, and refused as one
			}
			if value = trimBlanks(value); value != "" {
				found = append(found, value)
			}
		}
	}
	return found
}

// StripQuery is a raw query without its credential: what may go upstream of a Gemini path.
func StripQuery(query string) string {
	kept := make([]string, 0, 4)
	for pair := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(pair, "="); pair != "" && !isQueryKey(name) {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}

// isQueryKey also sees through percent-encoding, as the upstream does.
func isQueryKey(name string) bool {
	decoded, err := url.QueryUnescape(name)
	return err == nil && decoded == queryParameter
}

// cutBearer takes the secret out of "Bearer <secret>", the scheme in any letter case (RFC 7235).
func cutBearer(v string) (secret string, ok bool) {
	const scheme = "bearer"
	if len(v) < len(scheme) || !strings.EqualFold(v[:len(scheme)], scheme) {
		return "", false
	}
	rest := v[len(scheme):]
	if rest == "" {
		return "", true
	}
	if rest[0] != ' ' && rest[0] != '\t' {
		return "", false
	}
	return trimBlanks(rest), true
}

func trimBlanks(s string) string { return strings.Trim(s, " \t\r\n") }

// printable reports whether every byte can be part of a secret.
func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// isJWT reports the shape of a JSON Web Token: three base64url parts, the first of which begins as JSON does.
func isJWT(s string) bool {
	if !strings.HasPrefix(s, "eyJ") {
		return false
	}
	dots := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '.':
			dots++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '=':
		default:
			return false
		}
	}
	return dots == 2
}

// isAnthropicOAuth reports the shape of the token of a person logged in to Anthropic.
func isAnthropicOAuth(s string) bool { return strings.HasPrefix(s, "sk-ant-oat") }
