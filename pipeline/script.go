package pipeline

import (
	"crypto/sha1" //nolint:gosec // the name Redis gives a script, not a safeguard
	"encoding/hex"
	"strings"
)

// Script is a Lua script that runs on the server. Make it once, as a package variable; it is immutable and safe for
// concurrent use.
//
// A first line "#!lua flags=..." is sent to servers that know it (Redis 7) and left out where the interpreter does
// not; the digest is that of the text really sent.
type Script struct {
	name   string
	source [2]text // by dialect
	once   bool    // made by NewOnce
}

// The Lua dialects of the backends.
const (
	withShebang = iota
	withoutShebang
)

type text struct{ source, sha string }

// NewScript makes a script. The name shows in traces.
func NewScript(name, source string) *Script {
	bare := source
	if strings.HasPrefix(source, "#!") {
		_, bare, _ = strings.Cut(source, "\n")
	}
	return &Script{name: name, source: [2]text{digest(source), digest(bare)}}
}

// Name is the name given to NewScript.
func (s *Script) Name() string { return s.name }

// Source is the text that servers run.
func (s *Script) Source() string { return s.source[withShebang].source }

func digest(source string) text {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	return text{source, hex.EncodeToString(sum[:])}
}

// call builds the argument list of the script: EVALSHA, or EVAL when whole is set.
func (s *Script) call(dialect int, whole bool, keys []string, args []any) []any {
	t := s.source[dialect]
	list := make([]any, 0, 3+len(keys)+len(args))
	if whole {
		list = append(list, "EVAL", t.source)
	} else {
		list = append(list, "EVALSHA", t.sha)
	}
	list = append(list, len(keys))
	for _, k := range keys {
		list = append(list, k)
	}
	return append(list, args...)
}
