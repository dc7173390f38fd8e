package cache

import (
	"bytes"
	"errors"
	"strconv"
)

// appendNumber writes the exact decimal value of a JSON number: its digits without zeros at either end, and the power
// of ten of the last one. No float takes part, so large integers keep apart. The sign of a zero is kept: it costs at
// most a miss.
func appendNumber(dst, raw []byte) ([]byte, error) {
	dst = append(dst, 'n')
	if raw[0] == '-' {
		dst = append(dst, '-')
		raw = raw[1:]
	}
	var exponent int64
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		var err error
		// 32 bits leave room for the digits' own shift; providers take no number anywhere near.
		if exponent, err = strconv.ParseInt(string(raw[i+1:]), 10, 32); err != nil {
			return dst, errors.New("a number's exponent is out of range")
		}
		raw = raw[:i]
	}
	whole, fraction, _ := bytes.Cut(raw, []byte("."))
	exponent -= int64(len(fraction))
	digits := len(dst)
	dst = append(dst, whole...)
	dst = append(dst, fraction...)
	kept := bytes.TrimLeft(dst[digits:], "0")
	trimmed := bytes.TrimRight(kept, "0")
	exponent += int64(len(kept) - len(trimmed))
	if len(trimmed) == 0 {
		exponent = 0
	}
	dst = append(dst[:digits], trimmed...)
	dst = append(dst, 'e')
	dst = strconv.AppendInt(dst, exponent, 10)
	return append(dst, ';'), nil
}
