package usage

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// governed are the top-level members that decide about money, access, caching or the answer's form.
var governed = []string{
	"background", "cache", "conversation", "functions", "max_completion_tokens", "max_tokens", "messages", "metadata",
	"model", "n", "plugins", "previous_response_id", "response_format", "safety_identifier", "search_parameters",
	"service_tier", "store", "stream", "stream_options", "tools", "user", "web_search_options",
}

func isGoverned(name string) bool {
	_, found := slices.BinarySearch(governed, name)
	return found
}

// isVariant reports whether a name is a governed one in other letters, as servers written in Go would match it
// ("MODEL", and "me\u017f\u017fages" with its two long s). Governed names are lower-case ASCII, so a name without
// upper-case and non-ASCII letters is none, which settles nearly every name at once.
func isVariant(name []byte) bool {
	if !slices.ContainsFunc(name, func(c byte) bool { return 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf }) {
		return false
	}
	return slices.ContainsFunc(governed, func(g string) bool { return bytes.EqualFold(name, []byte(g)) })
}

// modelName reads the model. The name goes into headers and messages, so it has no control characters.
func modelName(value []byte) (string, error) {
	if kindOf(value) != '"' {
		return "", malformed("model", "model must be a string")
	}
	name := unescape(value)
	switch {
	case len(name) == 0:
		return "", malformed("model", "model is empty")
	case len(name) > maxName:
		return "", malformed("model", "model is longer than %d bytes", maxName)
	case slices.ContainsFunc(name, func(c byte) bool { return c < ' ' || c == 0x7F }):
		return "", malformed("model", "model has control characters")
	}
	return string(name), nil
}

// count reads an integer and saturates it. Null, zero and negative numbers are 0, which stands for absent: they pass,
// and reserve as if nothing was named.
func count(param string, value []byte, most int64) (int64, error) {
	if isNull(value) {
		return 0, nil
	}
	digits := value
	negative := value[0] == '-'
	if negative {
		digits = value[1:]
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, malformed(param, "%s must be an integer", param)
		}
		n = min(n*10+int64(c-'0'), most)
	}
	if negative {
		return 0, nil
	}
	return n, nil
}

// serviceTier reads service_tier; "auto" and "default" are the default.
func serviceTier(value []byte) (string, error) {
	const longest = 64
	if isNull(value) {
		return "", nil
	}
	if value[0] != '"' || len(value) > longest {
		return "", malformed("service_tier", "service_tier must be a short string")
	}
	switch tier := string(unescape(value)); tier {
	case "auto", "default":
		return "", nil
	default:
		return tier, nil
	}
}

// hasProviderTool reports whether an entry of tools is one that the provider runs: anything but a function of the
// client's. An entry of functions has no type.
func hasProviderTool(tools []byte) bool {
	for tool := range elements(tools) {
		switch string(unescape(member(tool, "type"))) {
		case "", "function", "custom":
		default:
			return true
		}
	}
	return false
}
