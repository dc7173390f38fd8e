package price

import (
	"math/bits"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

const (
	million = 1_000_000
	// MaxNano is the largest amount, in nano-dollars: nine million dollars, and the largest integer that Redis scripts,
	// whose numbers are doubles, count exactly. Larger costs saturate.
	MaxNano = 1<<53 - 1
)

// Cost is what one request costs, in nano-dollars.
type Cost struct {
	List     int64 // at the list price
	Contract int64 // at the price paid
}

// Cost prices the usage. The number of input tokens, cached ones included, chooses the step that all tokens are priced
// at; the sum is rounded once, half up. Negative counts are zero.
func (r Row) Cost(u usage.Usage) Cost {
	s := r.schedule().at(u.Input)
	read, write, write1h, write12h := count(u.CacheRead), count(u.CacheWrite), count(u.CacheWrite1h), count(u.CacheWrite12h)
	thought := count(u.Reasoning)

	var sum amount
	sum.add(beyond(count(u.Input), read+write+write1h+write12h), s[input])
	sum.add(read, s[cacheRead])
	sum.add(write, s[cacheWrite])
	sum.add(write1h, s[cacheWrite1h])
	sum.add(write12h, s[cacheWrite12h])
	sum.add(beyond(count(u.Output), thought), s[output])
	sum.add(thought, s[reasoning])

	list := sum.scale(1, million, million/2)
	if r.millionths() == million {
		return Cost{List: list, Contract: list}
	}
	return Cost{List: list, Contract: sum.scale(r.millionths(), million*million, million*million/2)}
}

// Reserve is the worst case for an admission at the contract price: what the estimated input costs, in nano-dollars,
// and what a million tokens of output do, each rounded up. The estimate chooses the step. A request for another
// service tier may be served at the standard one, so the dearer of both counts.
func (r Row) Reserve(inputTokens int64) (fixedNano, perMillionOutput int64) {
	s, base := r.schedule().at(inputTokens), r.standard().at(inputTokens)
	var in, out amount
	in.add(count(inputTokens), max(s[input], base[input]))
	out.add(1, max(s[output], s[reasoning], base[output], base[reasoning]))
	f := r.millionths()
	return in.scale(f, million*million, million*million-1), out.scale(f, million, million-1)
}

// count brings a number of tokens within what 128 bits can price.
func count(tokens int64) uint64 { return uint64(min(max(tokens, 0), usage.MaxTokens)) }

// beyond is how many of all are not among the part.
func beyond(all, part uint64) uint64 {
	if part >= all {
		return 0
	}
	return all - part
}

// amount is a sum of tokens times price: nano-dollars per million, in 128 bits.
type amount struct{ hi, lo uint64 }

// add adds tokens at a price. Seven products of at most 2^40 and 2^53 fit.
func (a *amount) add(tokens uint64, price int64) {
	hi, lo := bits.Mul64(tokens, uint64(min(max(price, 0), MaxNano)))
	var carry uint64
	a.lo, carry = bits.Add64(a.lo, lo, 0)
	a.hi, _ = bits.Add64(a.hi, hi, carry)
}

// scale is (amount x factor + rounding) / divisor, exact in 192 bits and saturated at MaxNano.
func (a amount) scale(factor, divisor, rounding uint64) int64 {
	hi, mid := bits.Mul64(a.hi, factor)
	carried, lo := bits.Mul64(a.lo, factor)
	mid, carry := bits.Add64(mid, carried, 0)
	hi += carry
	lo, carry = bits.Add64(lo, rounding, 0)
	mid, carry = bits.Add64(mid, 0, carry)
	hi += carry
	if hi > 0 || mid >= divisor {
		return MaxNano
	}
	quotient, _ := bits.Div64(mid, lo, divisor)
	return int64(min(quotient, MaxNano))
}
