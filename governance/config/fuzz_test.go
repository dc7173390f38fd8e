package config

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// FuzzLoad: no bytes make loading panic or hang; what is refused is refused with a reason for each problem, what is
// accepted can be explained.
func FuzzLoad(f *testing.F) {
	example, err := os.ReadFile(examplePath)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	for _, s := range []string{
		"", "version: 1", "a: &x 1\nb: *x\n", "<<: {a: 1}", "--- |\n x\n", "? a\n: b", "%TAG ! x\n---\n", "- - - a", "{a: [b, {c: d}]}", "a: \"\\x00\"",
		"keys: [{id: a, secret: 00123, limits: {rpm: 1.9}}]", "teams:\n- id: a\n  limits: {budgets: [{usd: 1, per: day}]}\n", "a: 'b", "a: |\n  b\n c\n", "drain: ${X}",
		modelM, "a: !!binary x", "\ufeffa: 1\r\nb: 2\r\n", "!", "&", "*", "a:\n -", "[", "{", "a: >-2\n  x\n", "\t", "#",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// Files outside the test's own are none of its business.
		if strings.Contains(string(data), "include") || strings.Contains(string(data), "file") {
			return
		}
		c, err := parse("t.yaml", data, Options{Env: lookup(map[string]string{"A": "b"})})
		var problems Problems
		switch {
		case err == nil:
			if explainErr := c.Explain(&strings.Builder{}); explainErr != nil {
				t.Fatal(explainErr)
			}
		case !errors.As(err, &problems) || len(problems) == 0:
			t.Fatalf("error without problems: %v", err)
		default:
			for _, p := range problems {
				if p.File != "t.yaml" || p.Message == "" {
					t.Fatalf("problem without place or message: %+v", p)
				}
			}
		}
	})
}
