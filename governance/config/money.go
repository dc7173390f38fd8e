package config

import (
	"errors"
	"strconv"
	"strings"
)

var (
	errMoney    = errors.New("must be a plain decimal in US dollars such as 12.50: no sign, exponent or separator")
	errNano     = errors.New("is finer than a nano-dollar: at most nine decimals")
	errMoneyMax = errors.New("is too large: the most is 9007199.254740991 dollars (2^53 - 1 nano-dollars)")
	errFactor   = errors.New("must be a plain decimal such as 0.82, above 0, at most 1000, with at most six decimals")
)

// parseMoney reads US dollars as written and gives nano-dollars, exactly. As a price it reads dollars per million
// tokens and gives nano-dollars per million tokens.
func parseMoney(s string) (Nano, error) {
	if rest, negative := strings.CutPrefix(s, "-"); negative && decimalText(rest) {
		return 0, errNegative
	}
	if !decimalText(s) {
		return 0, errMoney
	}
	n, err := fixed(s, 9)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, errNano
	case err != nil || n > maxCount:
		return 0, errMoneyMax
	}
	return n, nil
}

// parseFactor reads a price factor and gives millionths. 0 is refused: PriceFactor's zero value stands for 1, and what
// costs nothing is said with a price of 0.
func parseFactor(s string) (PriceFactor, error) {
	if !decimalText(s) {
		return 0, errFactor
	}
	n, err := fixed(s, 6)
	if err != nil || n == 0 || n > 1000e6 {
		return 0, errFactor
	}
	return PriceFactor(n), nil
}

// decimalText reports whether s is digits, optionally with a point between digits.
func decimalText(s string) bool {
	whole, fraction, point := strings.Cut(s, ".")
	return allDigits(whole) && (!point || allDigits(fraction))
}

// fixed reads a decimal as a whole number of 10^-decimals. Its error is strconv.ErrSyntax when digits other than zero
// would be lost, strconv.ErrRange when the number needs more than 63 bits.
func fixed(s string, decimals int) (int64, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) > decimals {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", decimals-len(fraction)), 10, 64)
	if err != nil {
		return 0, strconv.ErrRange
	}
	return n, nil
}

// dollars writes billionths as a decimal, without trailing zeros: nano-dollars as dollars.
func dollars(n Nano) string {
	s := strconv.FormatInt(n, 10)
	if len(s) < 10 {
		s = strings.Repeat("0", 10-len(s)) + s
	}
	whole, fraction := s[:len(s)-9], strings.TrimRight(s[len(s)-9:], "0")
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}
