package tripcount

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommand(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   string
		want []string
		err  error
	}{
		{name: "array", in: "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", want: []string{"GET", "k"}},
		{name: "binary argument", in: "*2\r\n$3\r\nGET\r\n$4\r\n\r\n\x00\xff\r\n", want: []string{"GET", "\r\n\x00\xff"}},
		{name: "empty argument", in: "*2\r\n$3\r\nGET\r\n$0\r\n\r\n", want: []string{"GET", ""}},
		{name: "no arguments", in: "*0\r\n"},
		{name: "null array", in: "*-1\r\n"},
		{name: "inline", in: "SET  a 1\r\n", want: []string{"SET", "a", "1"}},
		{name: "inline without carriage return", in: "PING\n", want: []string{"PING"}},
		{name: "empty line", in: "\r\n", want: []string{}},
		{name: "end of input", in: "", err: io.EOF},
		{name: "cut in the header", in: "*2\r", err: io.ErrUnexpectedEOF},
		{name: "cut in an argument", in: "*1\r\n$4\r\nPI", err: io.ErrUnexpectedEOF},
		{name: "cut before an argument", in: "*1\r\n", err: io.ErrUnexpectedEOF},
		{name: "argument of another type", in: "*1\r\n:1\r\n", err: errProtocol},
		{name: "null argument", in: "*1\r\n$-1\r\n", err: errProtocol},
		{name: "too many arguments", in: "*1048577\r\n", err: errProtocol},
		{name: "argument too long", in: "*1\r\n$536870913\r\n", err: errProtocol},
		{name: "length is no number", in: "*x\r\n", err: errProtocol},
		{name: "wrong end of an argument", in: "*1\r\n$1\r\nabc\r\n", err: errProtocol},
		{name: "line too long", in: strings.Repeat("a", maxLine+1), err: errProtocol},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			in := newFrames(strings.NewReader(test.in))
			got, err := in.command()
			if !errors.Is(err, test.err) {
				t.Fatalf("error is %v, want %v", err, test.err)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("command (-want +got):\n%s", diff)
			}
			if raw := string(in.take()); raw != test.in {
				t.Errorf("raw bytes are %q, want %q", raw, test.in)
			}
		})
	}
}

func TestReply(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   string
		want byte
		err  error
	}{
		{name: "simple string", in: "+OK\r\n", want: '+'},
		{name: "error", in: "-ERR no\r\n", want: '-'},
		{name: "integer", in: ":-5\r\n", want: ':'},
		{name: "bulk string", in: "$2\r\n\r\n\r\n", want: '$'},
		{name: "null bulk string", in: "$-1\r\n", want: '$'},
		{name: "null", in: "_\r\n", want: '_'},
		{name: "double", in: ",1.5\r\n", want: ','},
		{name: "boolean", in: "#t\r\n", want: '#'},
		{name: "big number", in: "(123\r\n", want: '('},
		{name: "bulk error", in: "!5\r\nERR x\r\n", want: '!'},
		{name: "verbatim", in: "=5\r\ntxt:a\r\n", want: '='},
		{name: "nested arrays", in: "*2\r\n*1\r\n:1\r\n$1\r\na\r\n", want: '*'},
		{name: "null array", in: "*-1\r\n", want: '*'},
		{name: "map", in: "%1\r\n+a\r\n:1\r\n", want: '%'},
		{name: "set", in: "~1\r\n+a\r\n", want: '~'},
		{name: "push", in: ">2\r\n+message\r\n+hi\r\n", want: '>'},
		{name: "attribute before a reply", in: "|1\r\n+ttl\r\n:9\r\n:1\r\n", want: ':'},
		{name: "end of input", in: "", err: io.EOF},
		{name: "cut in a map", in: "%1\r\n+a\r\n", err: io.ErrUnexpectedEOF},
		{name: "cut after an attribute", in: "|0\r\n", err: io.ErrUnexpectedEOF},
		{name: "empty line", in: "\r\n", err: errProtocol},
		{name: "unknown type", in: "@1\r\n", err: errProtocol},
		{name: "bad length", in: "$1x\r\n", err: errProtocol},
		{name: "bad count", in: "*-2\r\n", err: errProtocol},
		{name: "too deep", in: strings.Repeat("*1\r\n", maxDepth+2), err: errProtocol},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			in := newFrames(strings.NewReader(test.in))
			got, err := in.reply()
			if !errors.Is(err, test.err) {
				t.Fatalf("error is %v, want %v", err, test.err)
			}
			if err != nil {
				return
			}
			if got != test.want {
				t.Errorf("type is %q, want %q", got, test.want)
			}
			if raw := string(in.take()); raw != test.in {
				t.Errorf("raw bytes are %q, want %q", raw, test.in)
			}
		})
	}
}

// FuzzCommand checks that the bytes kept are the bytes read, and that what was parsed parses the same when sent again.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "PING\r\n", "*1\r\n$4\r\nPI", "*-1\r\n", "\n", "*1\r\n$0\r\n\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := newFrames(bytes.NewReader(data))
		args, err := in.command()
		raw := in.take()
		if !bytes.HasPrefix(data, raw) {
			t.Fatalf("raw bytes %q are no prefix of %q", raw, data)
		}
		if err != nil {
			return
		}
		var again bytes.Buffer
		fmt.Fprintf(&again, "*%d\r\n", len(args))
		for _, arg := range args {
			fmt.Fprintf(&again, "$%d\r\n%s\r\n", len(arg), arg)
		}
		repeated, err := newFrames(&again).command()
		if err != nil || len(repeated) != len(args) {
			t.Fatalf("%q sent again is %q, error %v", args, repeated, err)
		}
		if len(args) > 0 && !cmp.Equal(repeated, args) {
			t.Fatalf("%q sent again is %q", args, repeated)
		}
	})
}

// FuzzReply checks that any bytes end in a reply or an error, that the bytes kept are the bytes read, and that a reply
// stands alone: its own bytes give it again.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "*2\r\n*1\r\n:1\r\n$1\r\na\r\n", "|1\r\n+a\r\n:9\r\n:1\r\n", "%1\r\n+a\r\n", ">1\r\n_\r\n", "$-1\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := newFrames(bytes.NewReader(data))
		kind, err := in.reply()
		raw := in.take()
		if !bytes.HasPrefix(data, raw) {
			t.Fatalf("raw bytes %q are no prefix of %q", raw, data)
		}
		if err != nil {
			return
		}
		alone := newFrames(bytes.NewReader(raw))
		if again, err := alone.reply(); err != nil || again != kind || alone.more() {
			t.Fatalf("%q alone is %q, error %v; was %q", raw, again, err, kind)
		}
	})
}
