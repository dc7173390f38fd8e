package usage

import (
	"bytes"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// This file walks JSON that the decoder has already found valid; every function relies on that and none recurses, so
// the depth of a body costs no stack. Given anything else they stop at the end of their input.

// members yields the names (unescaped) and the values (as written) of an object; nothing when value is no object.
func members(value []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if kindOf(value) != '{' {
			return
		}
		i := skipTo(value, 1)
		for i < len(value) && value[i] == '"' {
			end := stringEnd(value, i)
			name := unescape(value[i:end])
			start := skipTo(value, end) // the colon, by skipTo's leave
			stop := valueEnd(value, start)
			if !yield(name, value[start:stop]) {
				return
			}
			i = skipTo(value, stop)
		}
	}
}

// elements yields the values of an array, as written; nothing when value is no array.
func elements(value []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if kindOf(value) != '[' {
			return
		}
		i := skipTo(value, 1)
		for i < len(value) && value[i] != ']' {
			stop := valueEnd(value, i)
			if stop == i || !yield(value[i:stop]) {
				return
			}
			i = skipTo(value, stop)
		}
	}
}

// member returns the value of one name of an object, nil when it has none.
func member(value []byte, name string) []byte {
	for n, v := range members(value) {
		if string(n) == name {
			return v
		}
	}
	return nil
}

// kindOf is the first byte of a value, 0 when there is none.
func kindOf(value []byte) byte {
	if len(value) == 0 {
		return 0
	}
	return value[0]
}

// isNull also holds for a member that is absent.
func isNull(value []byte) bool { return len(value) == 0 || value[0] == 'n' }

// skipTo returns the index of the next byte from i that begins a name or a value, or closes a container.
func skipTo(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\n', '\r', ',', ':':
			i++
		default:
			return i
		}
	}
	return i
}

// stringEnd returns the index after the closing quote of the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		next := bytes.IndexByte(b[i:], '"')
		if next < 0 {
			return len(b)
		}
		quote := i + next
		backslashes := 0
		for quote-1-backslashes >= i && b[quote-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return quote + 1
		}
		i = quote
	}
	return len(b)
}

// valueEnd returns the index after the value that begins at i.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of a scalar
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(b)
}

// unescape returns what a quoted string stands for; without an escape that is a part of quoted itself.
func unescape(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	plain, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return nil
	}
	return plain
}
