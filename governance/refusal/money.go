package refusal

import "strconv"

// nanoPerUSD is the number of nano-dollars in a dollar.
const nanoPerUSD = 1_000_000_000

// FormatUSD writes an amount of nano-dollars as decimal dollars, exactly and with no trailing zeros: 1500000000 is
// "1.5". The result is also a JSON number.
func FormatUSD(nano int64) string {
	return string(appendUSD(make([]byte, 0, 24), nano))
}

func appendUSD(dst []byte, nano int64) []byte {
	n := uint64(nano)
	if nano < 0 {
		dst = append(dst, '-')
		n = -n // the magnitude, right also for the smallest int64
	}
	dst = strconv.AppendUint(dst, n/nanoPerUSD, 10)
	rest := n % nanoPerUSD
	if rest == 0 {
		return dst
	}
	dst = append(dst, '.')
	for rest != 0 {
		rest *= 10
		dst = append(dst, byte('0'+rest/nanoPerUSD))
		rest %= nanoPerUSD
	}
	return dst
}
