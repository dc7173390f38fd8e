package config

import (
	"errors"
	"strings"
)

var (
	errDollar = errors.New("a dollar is written $$, a variable ${NAME}")
	errName   = errors.New("the name of a variable has letters, digits and _, and no digit first: ${NAME}")
)

// expand puts variables in place of ${NAME} and a dollar in place of $$. What a variable holds is not expanded again.
// used says whether a variable was read; unset names those that lookup does not know.
func expand(raw string, lookup func(string) (string, bool)) (text string, used bool, unset []string, err error) {
	before, rest, found := strings.Cut(raw, "$")
	if !found {
		return raw, false, nil, nil
	}
	var b strings.Builder
	for found {
		b.WriteString(before)
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			rest = rest[1:]
		case strings.HasPrefix(rest, "{"):
			name, after, closed := strings.Cut(rest[1:], "}")
			if !closed || !variableName(name) {
				return "", false, nil, errName
			}
			value, set := lookup(name)
			if !set {
				unset = append(unset, name)
			}
			b.WriteString(value)
			used, rest = true, after
		default:
			return "", false, nil, errDollar
		}
		before, rest, found = strings.Cut(rest, "$")
	}
	b.WriteString(before)
	return b.String(), used, unset, nil
}

// variableName reports whether s can name an environment variable.
func variableName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// reference is the prefix of a value that as a whole names a variable or a file: "env", "file" or "".
func reference(raw string) string {
	for _, kind := range []string{"env", "file"} {
		if strings.HasPrefix(raw, kind+":") {
			return kind
		}
	}
	return ""
}
