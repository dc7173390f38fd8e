package demo

import (
	"unicode"
	"unicode/utf8"
)

// tokenRunes is the most characters a token has beside the blanks before it.
const tokenRunes = 6

// messageTokens is what each message of a prompt costs beside its text: role and separators. OpenAI's chat format costs
// as many.
const messageTokens = 4

// CountTokens counts the demo provider's tokens: a token is up to six characters without blanks, together with the blanks
// before them; blanks at the end are one more. It is no model's tokenizer, and anybody can check it by hand.
func CountTokens(text string) int {
	n := 0
	for len(text) > 0 {
		text = text[tokenLength(text):]
		n++
	}
	return n
}

// split cuts text into its tokens. Joined, they are the text.
func split(text string) []string {
	var tokens []string
	for len(text) > 0 {
		n := tokenLength(text)
		tokens = append(tokens, text[:n])
		text = text[n:]
	}
	return tokens
}

// tokenLength is the size in bytes of the token that text begins with. Text is not empty.
func tokenLength(text string) int {
	runes := 0
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		blank := unicode.IsSpace(r)
		if runes > 0 && blank || runes == tokenRunes {
			return at
		}
		if !blank {
			runes++
		}
		at += size
	}
	return len(text)
}
