package usage

import "bytes"

// Bounds on the shape of a body. Finding a name twice takes a table of all names of an object: without a bound, a body
// of 32 MiB that is all names costs seconds and hundreds of megabytes.
const (
	maxMembers = 10_000 // of one object; the largest schemas have a few thousand
	maxDepth   = 10_000 // the decoder's own bound
)

// crowded reports whether some object of the body has more than maxMembers members. Nearly every body has fewer colons
// than that, in its texts and between its names together, and is only counted through. The body need not be valid.
func crowded(body []byte) bool {
	if bytes.Count(body, []byte{':'}) <= maxMembers {
		return false
	}
	var names []int // of each open container
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i = stringEnd(body, i) - 1
		case '{', '[':
			if len(names) == maxDepth {
				return false // which the decoder refuses
			}
			names = append(names, 0)
		case '}', ']':
			names = names[:max(len(names)-1, 0)]
		case ':':
			if top := len(names) - 1; top >= 0 {
				if names[top]++; names[top] > maxMembers {
					return true
				}
			}
		}
	}
	return false
}
