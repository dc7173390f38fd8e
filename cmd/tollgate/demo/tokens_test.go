package demo

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		text string
		want []string
	}{
		{name: "empty", text: ""},
		{name: "words", text: "to be or", want: []string{"to", " be", " or"}},
		{name: "long word", text: "governance", want: []string{"govern", "ance"}},
		{name: "exactly six", text: "budget", want: []string{"budget"}},
		{name: "blanks belong to what follows", text: "a \n b", want: []string{"a", " \n b"}},
		{name: "blanks at the end", text: "a  ", want: []string{"a", "  "}},
		{name: "only blanks", text: " \t", want: []string{" \t"}},
		{name: "characters, not bytes", text: "ééééééé", want: []string{"éééééé", "é"}},
		{name: "no UTF-8", text: "\xff\xfe", want: []string{"\xff\xfe"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, split(test.text)); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
			if got := CountTokens(test.text); got != len(test.want) {
				t.Errorf("CountTokens = %d, want %d", got, len(test.want))
			}
		})
	}
}

// FuzzSplit checks that no byte is lost, that none of the tokens is empty, and that the count is that of the tokens.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{"", "hello world", "   ", "governance\u00a0é", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens := split(text)
		if joined := strings.Join(tokens, ""); joined != text {
			t.Fatalf("tokens of %q join to %q", text, joined)
		}
		for _, token := range tokens {
			if token == "" || len([]rune(strings.TrimSpace(token))) > tokenRunes {
				t.Fatalf("token %q of %q", token, text)
			}
		}
		if got := CountTokens(text); got != len(tokens) {
			t.Fatalf("CountTokens(%q) = %d, want %d", text, got, len(tokens))
		}
	})
}
