package refusal

import (
	"math"
	"math/big"
	"testing"
)

func TestFormatUSD(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		nano int64
		want string
	}{
		{"zero", 0, "0"},
		{"one nano-dollar", 1, "0.000000001"},
		{"no trailing zeros", 1_500_000_000, "1.5"},
		{"whole", 100_000_000_000, "100"},
		{"inner zeros", 1_000_000_010, "1.00000001"},
		{"a value floats cannot hold", 9_007_199_254_740_993, "9007199.254740993"},
		{"negative", -250_000_000, "-0.25"},
		{"largest", math.MaxInt64, "9223372036.854775807"},
		{"smallest", math.MinInt64, "-9223372036.854775808"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := FormatUSD(tt.nano); got != tt.want {
				t.Errorf("FormatUSD(%d) = %q, want %q", tt.nano, got, tt.want)
			}
		})
	}
}

func FuzzFormatUSD(f *testing.F) {
	f.Add(int64(0))
	f.Add(int64(-1))
	f.Add(int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, nano int64) {
		got, ok := new(big.Rat).SetString(FormatUSD(nano))
		if !ok {
			t.Fatalf("FormatUSD(%d) = %q is no number", nano, FormatUSD(nano))
		}
		if want := big.NewRat(nano, nanoPerUSD); got.Cmp(want) != 0 {
			t.Fatalf("FormatUSD(%d) = %v, want %v", nano, got, want)
		}
	})
}
