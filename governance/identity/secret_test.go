package identity

import (
	"strings"
	"testing"
)

func TestNewSecret(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var used [256]bool
	for range 500 {
		s, err := NewSecret()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(s, "sk-tg-") || len(s) != 44 {
			t.Fatalf("secret of the wrong form: %d bytes", len(s))
		}
		if !LooksLikeKey(s) {
			t.Fatal("a secret's own checksum does not hold")
		}
		if seen[s] {
			t.Fatal("the same secret twice")
		}
		seen[s] = true
		for _, c := range []byte(s[len(secretPrefix) : len(s)-checksumLength]) {
			used[c] = true
		}
	}
	for _, c := range []byte(base62) {
		if !used[c] {
			t.Errorf("in 500 secrets there is no %q", c)
		}
	}
}

func TestLooksLikeKey(t *testing.T) {
	t.Parallel()
	// CRC-32 (IEEE) of "sk-tg-" and 32 zeros is 0x705611b5.
	good := "sk-tg-" + strings.Repeat("0", 32) + string(appendChecksum(nil, 0x705611b5))
	for _, tt := range []struct {
		name string
		in   string
		want bool
	}{
		{"good", good, true},
		{"another character", strings.Replace(good, "0", "1", 1), false},
		{"another checksum", good[:len(good)-1] + "!", false},
		{"letter case counts", strings.ToUpper(good), false},
		{"too short", good[:len(good)-1], false},
		{"too long", good + "0", false},
		{"another prefix", "sk-xx-" + good[6:], false},
		{"empty", "", false},
		{"a key of OpenAI", "sk-proj-0123456789", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := LooksLikeKey(tt.in); got != tt.want {
				t.Errorf("LooksLikeKey(%q) = %v, want %v", tt.in, got, tt.want)
			}
		})
	}
}

func TestChecksumDigits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		sum  uint32
		want string
	}{
		{"zero", 0, "000000"},
		{"one digit", 61, "00000z"},
		{"carry", 62, "000010"},
		{"largest", 1<<32 - 1, "4gfFC3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(appendChecksum(nil, tt.sum)); got != tt.want {
				t.Errorf("digits of %d: %s, want %s", tt.sum, got, tt.want)
			}
		})
	}
}
