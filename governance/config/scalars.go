package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxCount bounds every number: the counters of the admission script are doubles, exact below 2^53.
const maxCount = 1<<53 - 1

// Messages of this layer never repeat the value: it can be a secret that slipped into the wrong key.
var (
	errWhole    = errors.New("must be a whole number such as 600: digits only, no fraction, exponent, sign or separator")
	errNegative = errors.New("must not be negative")
	errTooLarge = errors.New("is too large: the most is 9007199254740991 (2^53 - 1)")
	errBool     = errors.New("must be true or false")
	errDuration = errors.New("must be a duration such as 100ms, 30s, 5m, 12h or 400d")
	errLong     = errors.New("is too long: the most is 106751 days")
	errBytes    = errors.New("must be a size such as 64KiB, 32MiB or 1GiB")
	errTime     = errors.New("must be a time with its zone such as 2027-12-31T00:00:00Z (RFC 3339)")
	errPercent  = errors.New("must be a whole percentage such as 80%")
)

// parseCount reads digits, 0 to 2^53 - 1.
func parseCount(s string) (int64, error) {
	if digits, negative := strings.CutPrefix(s, "-"); negative && allDigits(digits) {
		return 0, errNegative
	}
	if !allDigits(s) {
		return 0, errWhole
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > maxCount {
		return 0, errTooLarge
	}
	return n, nil
}

func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// parseBool reads YAML 1.2's true and false in lower case; yes, on and 1 are mistakes more often than booleans.
func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errBool
}

// unit is one suffix of a duration or a size.
type unit struct {
	suffix string
	size   int64
}

// The units, matched as a whole suffix; those that messages use stand first, the largest ahead.
var (
	durationUnits = []unit{
		{"d", 24 * int64(time.Hour)}, {"h", int64(time.Hour)}, {"m", int64(time.Minute)}, {"s", int64(time.Second)},
		{"ms", int64(time.Millisecond)}, {"us", int64(time.Microsecond)},
	}
	byteUnits = []unit{
		{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
		{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3},
	}
)

// parseDuration reads whole numbers with a unit, one or several in a row: 90s, 1h30m, 400d. A day has 24 hours.
func parseDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, errDuration
	}
	var total int64
	for s != "" {
		digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
		letters := digits + len(s[digits:]) - len(strings.TrimLeft(s[digits:], "abcdefghijklmnopqrstuvwxyz"))
		n, err := scaled(s[:digits], s[digits:letters], durationUnits)
		switch {
		case errors.Is(err, strconv.ErrRange) || err == nil && n > math.MaxInt64-total:
			return 0, errLong
		case err != nil:
			return 0, errDuration
		}
		total += n
		s = s[letters:]
	}
	return time.Duration(total), nil
}

// parseBytes reads a whole number with a unit: KiB, MiB, GiB, TiB, their decimal sisters kB, MB, GB, TB, or B.
func parseBytes(s string) (int64, error) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	n, err := scaled(s[:digits], s[digits:], byteUnits)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > maxCount:
		return 0, errTooLarge
	case err != nil:
		return 0, errBytes
	}
	return n, nil
}

// scaled is digits times the unit with exactly this suffix. Its error is strconv.ErrRange when the product needs more
// than 63 bits.
func scaled(digits, suffix string, units []unit) (int64, error) {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, err
	}
	for _, u := range units {
		if u.suffix != suffix {
			continue
		}
		if n > math.MaxInt64/u.size {
			return 0, strconv.ErrRange
		}
		return n * u.size, nil
	}
	return 0, strconv.ErrSyntax
}

// parseTime reads RFC 3339.
func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, errTime
	}
	return t, nil
}

// parsePercent reads 1% to 1000%: a soft budget may be watched far beyond its amount.
func parsePercent(s string) (int, error) {
	digits, marked := strings.CutSuffix(s, "%")
	if !marked || !allDigits(digits) {
		return 0, errPercent
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > 1000 {
		return 0, errors.New("must be from 1% to 1000%")
	}
	return n, nil
}
