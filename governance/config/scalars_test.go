package config

import (
	"math/big"
	"strings"
	"testing"
	"time"
)

// conversion is one case of a parser: a value, or the beginning of an error.
type conversion[T comparable] struct {
	name, text string
	want       T
	err        string
}

func convertAll[T comparable](t *testing.T, parse func(string) (T, error), tests []conversion[T]) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(test.text)
			switch {
			case test.err == "" && err != nil:
				t.Errorf("%q: %v", test.text, err)
			case test.err != "" && (err == nil || !strings.HasPrefix(err.Error(), test.err)):
				t.Errorf("%q: error %v, want %q", test.text, err, test.err)
			case got != test.want:
				t.Errorf("%q = %v, want %v", test.text, got, test.want)
			}
		})
	}
}

func TestParseCount(t *testing.T) {
	t.Parallel()
	convertAll(t, parseCount, []conversion[int64]{
		{name: "zero", text: "0", want: 0},
		{name: "plain", text: "600", want: 600},
		{name: "leading zeros are decimal", text: "0123", want: 123},
		{name: "largest", text: "9007199254740991", want: 1<<53 - 1},
		{name: "2^53", text: "9007199254740992", err: "is too large"},
		{name: "beyond 64 bits", text: "99999999999999999999", err: "is too large"},
		{name: "negative", text: "-1", err: "must not be negative"},
		{name: "fraction", text: "1.9", err: "must be a whole number"},
		{name: "whole fraction", text: "1.0", err: "must be a whole number"},
		{name: "exponent", text: "1e3", err: "must be a whole number"},
		{name: "hexadecimal", text: "0x1F", err: "must be a whole number"},
		{name: "octal", text: "0o17", err: "must be a whole number"},
		{name: "separator", text: "1_000", err: "must be a whole number"},
		{name: "plus", text: "+5", err: "must be a whole number"},
		{name: "blank", text: " 5", err: "must be a whole number"},
		{name: "not a number", text: ".nan", err: "must be a whole number"},
		{name: "infinity", text: ".inf", err: "must be a whole number"},
		{name: "other digits", text: "٣", err: "must be a whole number"},
		{name: "empty", text: "", err: "must be a whole number"},
	})
}

func TestParseMoney(t *testing.T) {
	t.Parallel()
	convertAll(t, parseMoney, []conversion[Nano]{
		{name: "zero", text: "0", want: 0},
		{name: "whole", text: "50000", want: 50_000_000_000_000},
		{name: "no float is exact here", text: "0.1", want: 100_000_000},
		{name: "price", text: "0.075", want: 75_000_000},
		{name: "nano-dollar", text: "0.000000001", want: 1},
		{name: "trailing zeros", text: "1.5000000000000", want: 1_500_000_000},
		{name: "leading zeros", text: "007.50", want: 7_500_000_000},
		{name: "largest", text: "9007199.254740991", want: 1<<53 - 1},
		{name: "2^53", text: "9007199.254740992", err: "is too large"},
		{name: "far too large", text: "1" + strings.Repeat("0", 400), err: "is too large"},
		{name: "finer than nano", text: "0.0000000001", err: "is finer than a nano-dollar"},
		{name: "negative", text: "-7", err: "must not be negative"},
		{name: "negative fraction", text: "-0.5", err: "must not be negative"},
		{name: "not a number", text: ".NaN", err: "must be a plain decimal"},
		{name: "NaN", text: "NaN", err: "must be a plain decimal"},
		{name: "infinity", text: "-.inf", err: "must be a plain decimal"},
		{name: "exponent", text: "1e400", err: "must be a plain decimal"},
		{name: "no digit before the point", text: ".5", err: "must be a plain decimal"},
		{name: "no digit behind the point", text: "5.", err: "must be a plain decimal"},
		{name: "two points", text: "1.2.3", err: "must be a plain decimal"},
		{name: "comma", text: "1,50", err: "must be a plain decimal"},
		{name: "currency", text: "$5", err: "must be a plain decimal"},
		{name: "empty", text: "", err: "must be a plain decimal"},
	})
}

func TestParseFactor(t *testing.T) {
	t.Parallel()
	convertAll(t, parseFactor, []conversion[PriceFactor]{
		{name: "discount", text: "0.82", want: 820_000},
		{name: "one", text: "1", want: 1_000_000},
		{name: "smallest", text: "0.000001", want: 1},
		{name: "largest", text: "1000", want: 1_000_000_000},
		{name: "zero", text: "0", err: "must be a plain decimal such as 0.82"},
		{name: "too fine", text: "0.0000001", err: "must be a plain decimal such as 0.82"},
		{name: "too large", text: "1000.1", err: "must be a plain decimal such as 0.82"},
		{name: "negative", text: "-0.5", err: "must be a plain decimal such as 0.82"},
		{name: "percentage", text: "82%", err: "must be a plain decimal such as 0.82"},
	})
}

func TestParseBool(t *testing.T) {
	t.Parallel()
	convertAll(t, parseBool, []conversion[bool]{
		{name: "true", text: "true", want: true},
		{name: "false", text: "false", want: false},
		{name: "capital", text: "True", err: "must be true or false"},
		{name: "yes", text: "yes", err: "must be true or false"},
		{name: "on", text: "on", err: "must be true or false"},
		{name: "one", text: "1", err: "must be true or false"},
		{name: "empty", text: "", err: "must be true or false"},
	})
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	convertAll(t, parseDuration, []conversion[time.Duration]{
		{name: "milliseconds", text: "100ms", want: 100 * time.Millisecond},
		{name: "microseconds", text: "5us", want: 5 * time.Microsecond},
		{name: "seconds", text: "30s", want: 30 * time.Second},
		{name: "minutes", text: "5m", want: 5 * time.Minute},
		{name: "hours and minutes", text: "1h30m", want: 90 * time.Minute},
		{name: "days", text: "400d", want: 400 * 24 * time.Hour},
		{name: "zero", text: "0s", want: 0},
		{name: "longest", text: "106751d", want: 106751 * 24 * time.Hour},
		{name: "too long", text: "106752d", err: "is too long"},
		{name: "too long in sum", text: "106751d106751d", err: "is too long"},
		{name: "digits beyond 64 bits", text: "99999999999999999999s", err: "is too long"},
		{name: "no unit", text: "30", err: "must be a duration"},
		{name: "no number", text: "s", err: "must be a duration"},
		{name: "unknown unit", text: "3w", err: "must be a duration"},
		{name: "capital", text: "30S", err: "must be a duration"},
		{name: "fraction", text: "1.5h", err: "must be a duration"},
		{name: "negative", text: "-5s", err: "must be a duration"},
		{name: "blank", text: "5 s", err: "must be a duration"},
		{name: "empty", text: "", err: "must be a duration"},
	})
}

func TestParseBytes(t *testing.T) {
	t.Parallel()
	convertAll(t, parseBytes, []conversion[int64]{
		{name: "kibibyte", text: "1KiB", want: 1024},
		{name: "mebibytes", text: "32MiB", want: 32 << 20},
		{name: "gibibyte", text: "1GiB", want: 1 << 30},
		{name: "tebibyte", text: "1TiB", want: 1 << 40},
		{name: "decimal", text: "5MB", want: 5_000_000},
		{name: "decimal kilo", text: "5kB", want: 5000},
		{name: "bytes", text: "100B", want: 100},
		{name: "no unit", text: "100", err: "must be a size"},
		{name: "lower case", text: "1mib", err: "must be a size"},
		{name: "fraction", text: "1.5MiB", err: "must be a size"},
		{name: "negative", text: "-1MiB", err: "must be a size"},
		{name: "2^53", text: "9007199254740992B", err: "is too large"},
		{name: "beyond 63 bits", text: "8388608TiB", err: "is too large"},
		{name: "empty", text: "", err: "must be a size"},
	})
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	convertAll(t, parseTime, []conversion[time.Time]{
		{name: "UTC", text: "2027-12-31T00:00:00Z", want: time.Date(2027, 12, 31, 0, 0, 0, 0, time.UTC)},
		{name: "a date alone", text: "2027-12-31", err: "must be a time with its zone"},
		{name: "no zone", text: "2027-12-31T00:00:00", err: "must be a time with its zone"},
		{name: "no such day", text: "2027-02-30T00:00:00Z", err: "must be a time with its zone"},
		{name: "words", text: "next year", err: "must be a time with its zone"},
		{name: "empty", text: "", err: "must be a time with its zone"},
	})
}

func TestParsePercent(t *testing.T) {
	t.Parallel()
	convertAll(t, parsePercent, []conversion[int]{
		{name: "plain", text: "80%", want: 80},
		{name: "largest", text: "1000%", want: 1000},
		{name: "zero", text: "0%", err: "must be from 1%"},
		{name: "too large", text: "1001%", err: "must be from 1%"},
		{name: "beyond 64 bits", text: "99999999999999999999%", err: "must be from 1%"},
		{name: "no sign", text: "80", err: "must be a whole percentage"},
		{name: "fraction", text: "0.8%", err: "must be a whole percentage"},
		{name: "negative", text: "-5%", err: "must be a whole percentage"},
		{name: "empty", text: "", err: "must be a whole percentage"},
	})
}

func TestDollars(t *testing.T) {
	t.Parallel()
	for n, want := range map[Nano]string{
		0: "0", 1: "0.000000001", 150_000_000: "0.15", 1_000_000_000: "1", 9007199254740991: "9007199.254740991", 10_500_000_000: "10.5",
	} {
		if got := dollars(n); got != want {
			t.Errorf("dollars(%d) = %q, want %q", n, got, want)
		}
	}
}

// FuzzMoney compares with exact fractions: what is accepted is the number that is written, to the last nano-dollar.
func FuzzMoney(f *testing.F) {
	for _, s := range []string{"0", "0.1", "12.50", "9007199.254740991", "-1", "1e3", ".5", "00.000000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseMoney(s)
		if err != nil {
			return
		}
		want, ok := new(big.Rat).SetString(s)
		if !ok {
			t.Fatalf("%q is accepted and no number", s)
		}
		if want.Cmp(big.NewRat(n, 1e9)) != 0 || n < 0 || n > maxCount {
			t.Fatalf("%q = %d nano-dollars", s, n)
		}
		if again, err := parseMoney(dollars(n)); err != nil || again != n {
			t.Fatalf("%q is shown as %q, which is %d, %v", s, dollars(n), again, err)
		}
	})
}

// FuzzDuration: what is accepted is shown as something that reads as the same.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"0s", "1h30m", "400d", "100ms", "5", "9223372036854775807us"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDuration(s)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%q = %d", s, d)
		}
		if again, err := parseDuration(showDuration(d)); err != nil || again != d {
			t.Fatalf("%q is shown as %q, which is %v, %v", s, showDuration(d), again, err)
		}
	})
}

// FuzzBytes: what is accepted is shown as something that reads as the same.
func FuzzBytes(f *testing.F) {
	for _, s := range []string{"0B", "1MiB", "5kB", "9007199254740991B", "1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseBytes(s)
		if err != nil {
			return
		}
		if again, err := parseBytes(showBytes(n)); err != nil || again != n || n < 0 || n > maxCount {
			t.Fatalf("%q = %d is shown as %q, which is %d, %v", s, n, showBytes(n), again, err)
		}
	})
}
