package limit

import "math/bits"

// mulDivUp is a*b/c rounded up, computed in 128 bits; a result beyond int64 is the largest one. All are zero or more.
func mulDivUp(a, b, c int64) int64 {
	const most = 1<<63 - 1
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	hi += carry
	if hi >= uint64(c) {
		return most
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, most))
}
