package usage

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Weights are hundredths of a token a byte, measured against five tokenizers (o200k, cl100k, Claude, DeepSeek, Tekken)
// so that the estimate is seldom below the worst of them: no tokenizer runs on the request path, because their worst
// cases are quadratic. A multi-byte character carries its weight on its first byte, so a plain sum over bytes is
// the sum over characters.
const (
	weightLower  = 30 // a-z and the blank
	weightUpper  = 95
	weightDigit  = 100
	weightASCII  = 85 // punctuation and control characters
	weightTwo    = 2 * 35
	weightThree  = 3 * 60
	weightFour   = 4 * 100
	weightStruct = 30 // a bracket, comma or colon between strings
)

// textWeights is by byte of UTF-8 text.
var textWeights = func() (w [256]uint16) {
	for b := range w {
		switch {
		case b == ' ' || 'a' <= b && b <= 'z':
			w[b] = weightLower
		case 'A' <= b && b <= 'Z':
			w[b] = weightUpper
		case '0' <= b && b <= '9':
			w[b] = weightDigit
		case b < utf8.RuneSelf:
			w[b] = weightASCII
		case b < 0xC0: // continues a character
		case b < 0xE0:
			w[b] = weightTwo
		case b < 0xF0:
			w[b] = weightThree
		default:
			w[b] = weightFour
		}
	}
	return w
}()

// structWeights is by byte of JSON outside strings: white space is not shown to a model.
var structWeights = func() (w [256]uint16) {
	for b := range w {
		switch b {
		case ' ', '\t', '\n', '\r', '"':
		case '{', '}', '[', ']', ',', ':':
			w[b] = weightStruct
		default:
			w[b] = textWeights[b]
		}
	}
	return w
}()

// tokens rounds a weight up to whole tokens.
func tokens(weight int64) int64 { return (weight + 99) / 100 }

// sum adds the weights of bytes in four independent chains, which is what makes it run at memory speed.
func sum(b []byte, w *[256]uint16) int64 {
	var s0, s1, s2, s3 uint64
	for ; len(b) >= 8; b = b[8:] {
		s0 += uint64(w[b[0]]) + uint64(w[b[4]])
		s1 += uint64(w[b[1]]) + uint64(w[b[5]])
		s2 += uint64(w[b[2]]) + uint64(w[b[6]])
		s3 += uint64(w[b[3]]) + uint64(w[b[7]])
	}
	for _, c := range b {
		s0 += uint64(w[c])
	}
	return int64(s0 + s1 + s2 + s3)
}

// textWeight is the weight of a JSON string's text, given with its quotes and escapes.
func textWeight(quoted []byte) int64 {
	if len(quoted) < 2 {
		return 0
	}
	s := quoted[1 : len(quoted)-1]
	var weight int64
	for {
		escape := bytes.IndexByte(s, '\\')
		if escape < 0 || escape+1 >= len(s) {
			return weight + sum(s, &textWeights)
		}
		weight += sum(s[:escape], &textWeights)
		w, n := escapeWeight(s[escape:])
		weight += w
		s = s[escape+n:]
	}
}

// escapeWeight is the weight and the length of the escape sequence that s begins with.
func escapeWeight(s []byte) (weight int64, length int) {
	if s[1] != 'u' || len(s) < 6 {
		return weightASCII, 2
	}
	r := hexRune(s[2:6])
	if utf16.IsSurrogate(r) {
		if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
			return weightFour, 12
		}
		return weightThree, 6 // alone it stands for U+FFFD
	}
	switch utf8.RuneLen(r) {
	case 1:
		return int64(textWeights[r]), 6
	case 2:
		return weightTwo, 6
	default:
		return weightThree, 6
	}
}

// hexRune reads four hexadecimal digits.
func hexRune(digits []byte) rune {
	var r rune
	for _, d := range digits {
		r <<= 4
		switch {
		case d >= 'a':
			r |= rune(d-'a'+10) & 0xF
		case d >= 'A':
			r |= rune(d-'A'+10) & 0xF
		default:
			r |= rune(d-'0') & 0xF
		}
	}
	return r
}

// valueWeight is the weight of a whole JSON value: its strings as text, names included, and what stands between them.
func valueWeight(value []byte) int64 {
	var weight int64
	for {
		quote := bytes.IndexByte(value, '"')
		if quote < 0 {
			return weight + sum(value, &structWeights)
		}
		weight += sum(value[:quote], &structWeights)
		end := stringEnd(value, quote)
		weight += textWeight(value[quote:end])
		value = value[end:]
	}
}
