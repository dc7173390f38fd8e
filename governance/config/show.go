package config

import (
	"strconv"
	"strings"
	"time"
)

// showDuration writes a duration as the file does: the largest units that leave whole numbers.
func showDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	var b strings.Builder
	rest := int64(d)
	for _, u := range durationUnits {
		if rest >= u.size {
			b.WriteString(strconv.FormatInt(rest/u.size, 10) + u.suffix)
			rest %= u.size
		}
	}
	return b.String()
}

// showBytes writes a size in the largest binary unit that leaves a whole number.
func showBytes(n int64) string {
	for _, u := range byteUnits {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return "0B"
}
