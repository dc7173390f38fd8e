package config

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	maxID        = 64  // bytes of an id
	maxModelName = 256 // bytes of a model's name
	maxEndUser   = 256 // bytes of an end user's id
)

// idRule: 1 to 64 letters, digits, dots, underscores and hyphens. Ids stand in Redis keys, headers and metrics.
func idRule(s string) string {
	if !idText(s) {
		return "must be 1 to 64 letters, digits, '.', '_' or '-'"
	}
	return ""
}

func idText(s string) bool {
	for _, c := range []byte(s) {
		if !lowerOrDigit(c) && (c < 'A' || c > 'Z') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= maxID
}

func lowerOrDigit(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// tagRule: an id, or name=value with both ids, 64 bytes in all.
func tagRule(s string) string {
	name, value, pair := strings.Cut(s, "=")
	if len(s) > maxID || !idText(name) || pair && !idText(value) {
		return "must be a tag such as ci or env=prod: at most 64 letters, digits, '.', '_' or '-', and one '='"
	}
	return ""
}

// tagPatternRule: a tag, or name=* for every value of a name.
func tagPatternRule(s string) string {
	if name, found := strings.CutSuffix(s, "=*"); found && idText(name) && len(s) <= maxID {
		return ""
	}
	return tagRule(s)
}

// endUserRule: anything readable. End users are named by the tenants' applications.
func endUserRule(s string) string {
	switch {
	case s == "" || len(s) > maxEndUser:
		return "must have 1 to 256 bytes"
	case !readable(s):
		return "has a control character or bad UTF-8 inside"
	}
	return ""
}

func readable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) })
}

// modelNameRule: a public model name, exact or a wildcard.
func modelNameRule(s string) string {
	switch {
	case s == "" || len(s) > maxModelName:
		return "must have 1 to 256 bytes"
	case !readable(s) || strings.ContainsFunc(s, unicode.IsSpace):
		return "must not have blanks or control characters inside"
	case strings.HasPrefix(s, "!"):
		return "must not begin with '!', which denies in lists"
	case strings.Contains(strings.TrimSuffix(s, "*"), "*"):
		return "can have a '*' only at the end"
	}
	return ""
}

// exactModelRule: a model name without wildcard.
func exactModelRule(s string) string {
	if strings.HasSuffix(s, "*") {
		return "must be one name without '*'"
	}
	return modelNameRule(s)
}

// textRule: free text in one line.
func textRule(s string) string {
	if s == "" || len(s) > 1024 || !readable(s) {
		return "must have 1 to 1024 bytes in one line"
	}
	return ""
}

// headerRule: an HTTP header name in lower case, as HTTP/2 and Envoy write it.
func headerRule(s string) string {
	for _, c := range []byte(s) {
		if !lowerOrDigit(c) && c != '-' && c != '_' {
			return "must be a header name in lower case"
		}
	}
	if s == "" || len(s) > maxID {
		return "must be a header name of 1 to 64 letters"
	}
	return ""
}

// sourceRule: where an identity is read: a header (x-...) or a path of members in the body (metadata.user_id).
func sourceRule(s string) string {
	if strings.HasPrefix(s, "x-") {
		return headerRule(s)
	}
	for part := range strings.SplitSeq(s, ".") {
		if !idText(part) {
			return "must be a header that begins with x- or a path in the body such as metadata.user_id"
		}
	}
	return ""
}

// pathRule: the path of an HTTP request, exact.
func pathRule(s string) string {
	if !strings.HasPrefix(s, "/") || !readable(s) || strings.ContainsAny(s, "?#* ") {
		return "must be a path such as /v1/my-own, without query or '*'"
	}
	return ""
}

// prefixRule: the prefix of Redis keys. Braces would move the hash tag of the keys.
func prefixRule(s string) string {
	if !idText(s) || len(s) > 32 {
		return "must be 1 to 32 letters, digits, '.', '_' or '-'"
	}
	return ""
}

// EndpointNames are what `endpoints` of an org, team or key can list.
var EndpointNames = []string{
	"chat", "completions", "responses", "embeddings", "moderations", "images", "speech", "transcriptions", "translations",
	"rerank", "models", "files", "batches", "realtime", "messages", "count_tokens", "generate", "converse", "invoke",
}

func endpointRule(s string) string {
	if slices.Contains(EndpointNames, s) {
		return ""
	}
	return "is no endpoint; the endpoints are " + strings.Join(EndpointNames, ", ") + didYouMean(s, EndpointNames)
}

// hashRule: the SHA-256 of a secret in hex, either case.
func hashRule(s string) string {
	if len(s) != 64 || strings.Trim(s, "0123456789abcdefABCDEF") != "" {
		return "must be 64 hex digits, the SHA-256 of the whole secret"
	}
	return ""
}

// addressRule: an address to listen on, host:port or unix:/path.
func addressRule(s string) string {
	if path, unix := strings.CutPrefix(s, "unix:"); unix {
		// 104 bytes is the smallest sun_path among the systems Go runs on, its final zero included.
		if !strings.HasPrefix(path, "/") || len(path) > 103 || !readable(path) {
			return "must be unix: and an absolute path of at most 103 bytes"
		}
		return ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || !hostText(host) && host != "" {
		return "must be host:port or unix:/path"
	}
	if !portText(port) {
		return "must end in a port from 0 to 65535"
	}
	return ""
}

func portText(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil && allDigits(s)
}

// hostText reports whether s can be a host: a name or an IP address without brackets.
func hostText(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if !idText(label) || strings.HasPrefix(label, "-") {
			return false
		}
	}
	return true
}

// zone is the time zone of a name of the IANA database. Local is refused: replicas must agree where a day begins.
func zone(name string) (*time.Location, string) {
	if name == "" || name == "Local" {
		return nil, "must be a time zone such as UTC or Europe/Berlin"
	}
	at, err := time.LoadLocation(name)
	if err != nil {
		return nil, "must be a time zone such as UTC or Europe/Berlin"
	}
	return at, ""
}
