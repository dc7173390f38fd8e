package config

import (
	"fmt"
	"slices"
	"strings"
)

// Finding is a remark about one key of the file. It never holds a value that came from a variable or a file.
type Finding struct {
	File    string
	Line    int    // 0: the file as a whole
	Key     string // dotted path, e.g. "teams[0].limits.rpm"; an index counts within its own file
	Message string
}

// String is "file:line: key: message", without the parts that are empty.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	if f.Key != "" {
		b.WriteString(": " + f.Key)
	}
	b.WriteString(": " + f.Message)
	return b.String()
}

// Problems is the error of Load: all that is wrong with a configuration, file by file in the order they were read, by line.
type Problems []Finding

// Error is one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, f := range p {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// sortFindings orders findings by file, as files says, then by line; findings of one line keep their order.
func sortFindings(found []Finding, files []string) {
	rank := make(map[string]int, len(files))
	for i, f := range files {
		rank[f] = i
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		if r := rank[a.File] - rank[b.File]; r != 0 {
			return r
		}
		return a.Line - b.Line
	})
}
