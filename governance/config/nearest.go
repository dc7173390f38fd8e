package config

import (
	"cmp"
	"math"
)

// closest is the candidate that needs the fewest edits to become word, fewer than limit; of equal ones the first.
func closest(word string, candidates []string, limit int) string {
	best := ""
	for _, c := range candidates {
		if d := edits(word, c, limit); d < limit {
			best, limit = c, d
		}
	}
	return best
}

// typo is how many edits a slip of the keyboard makes in a word, at most.
func typo(word string) int {
	switch {
	case len(word) < 4:
		return 1
	case len(word) < 9:
		return 2
	}
	return len(word) / 3
}

// didYouMean is the hint that ends an error about a name; "" when no candidate is near. A wrong number is no misspelt one.
func didYouMean(word string, candidates []string) string {
	if allDigits(word) {
		return ""
	}
	if c := closest(word, candidates, typo(word)+1); c != "" {
		return `; did you mean "` + c + `"?`
	}
	return ""
}

// nearestKey is the hint that ends an error about a key: the nearest one there is, however far.
func nearestKey(word string, known []string) string {
	c := closest(word, known, math.MaxInt)
	return cmp.Or(didYouMean(word, known), `; the nearest known key is "`+c+`"`)
}

// edits is the number of insertions, deletions, substitutions and swaps of neighbours that turn a into b, at most limit.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	previous, current, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range current {
		current[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(current[j+1]+1, next[j]+1, current[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], previous[j-1]+1)
			}
		}
		previous, current, next = current, next, previous
	}
	return min(current[len(b)], limit)
}
