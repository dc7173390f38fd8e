package cache

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   string
		want []string
	}{
		{"two", "data: a\n\ndata: b\n\n", []string{"a", "b"}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		{"CR", "data: a\r\rdata: b\r\r", []string{"a", "b"}},
		{"mixed", "data: a\r\n\ndata: b\n\r\n", []string{"a", "b"}},
		{"no blank after the colon", "data:a\n\n", []string{"a"}},
		{"one blank is no content, two are one", "data:  a\n\n", []string{" a"}},
		{"several lines", "data: a\ndata: b\n\n", []string{"a\nb"}},
		{"comments and other fields", ": hi\nevent: x\nid: 1\ndata: a\nretry: 5\n\n: bye\n\n", []string{"a"}},
		{"a longer name", "database: a\n\n", nil},
		{"no colon is an empty datum", "data\n\n", []string{""}},
		{"no last blank line", "data: a", []string{"a"}},
		{"no last line end", "data: a\n\ndata: b\n", []string{"a", "b"}},
		{"byte order mark", "\ufeffdata: a\n\n", []string{"a"}},
		{"only blank lines", "\n\r\n\r", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(tt.in); size++ {
				var got []string
				e := events{emit: func(data []byte) error { got = append(got, string(data)); return nil }}
				for rest := []byte(tt.in); len(rest) > 0; {
					n := min(size, len(rest))
					if err := e.write(rest[:n]); err != nil {
						t.Fatal(err)
					}
					rest = rest[n:]
				}
				if err := e.close(); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Fatalf("cut every %d bytes (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in string }{
		{"a line without an end", strings.Repeat("x", 200)},
		{"many data lines", strings.Repeat("data: xxxxxxxx\n", 20)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := events{max: 100, emit: func([]byte) error { return nil }}
			var err error
			for i := range tt.in {
				if err = e.write([]byte(tt.in[i : i+1])); err != nil {
					break
				}
			}
			if !errors.Is(err, errEventTooLarge) {
				t.Errorf("error %v", err)
			}
		})
	}
}
