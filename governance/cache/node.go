package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// node is a JSON value that can grow: the text of a string is kept unescaped so that pieces are appended in place, and
// members keep the order in which they came.
type node struct {
	kind    jsontext.Kind // '{', '[', '"', '0', 't', 'f' or 'n'
	text    []byte        // of a string, unescaped; of a number, as written
	members []named
	items   []*node
	size    int // bytes it took in the document, for the collector's bound
}

type named struct {
	name  string
	value *node
}

// Bounds on an answer's form; real ones stay below 20, 50 and 100. Members and indexed elements are found by looking
// at each, so many of them would cost time that is quadratic.
const (
	maxDepth   = 256
	maxMembers = 1024
	maxIndex   = 1023
)

var (
	errDepth   = errors.New("nested too deeply")
	errMembers = errors.New("an object has too many members")
)

var (
	errNoObject = errors.New("not a JSON object")
	errTrailing = errors.New("data after the JSON object")
)

// parseNode reads one JSON object that is all of data.
func parseNode(data []byte) (*node, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data))
	n, err := readNode(dec, 0)
	if err != nil {
		return nil, err
	}
	if n.kind != '{' {
		return nil, errNoObject
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errTrailing
	}
	return n, nil
}

func readNode(dec *jsontext.Decoder, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	start := dec.InputOffset()
	n := &node{kind: dec.PeekKind()}
	var err error
	switch n.kind {
	case '{':
		err = n.readMembers(dec, depth)
	case '[':
		err = n.readItems(dec, depth)
	default:
		var raw jsontext.Value
		if raw, err = dec.ReadValue(); err != nil {
			return nil, err
		}
		switch n.kind {
		case 'n':
			return null, nil
		case '"':
			n.text, err = jsontext.AppendUnquote(nil, raw)
		default:
			n.text = bytes.Clone(raw)
		}
	}
	n.size = int(dec.InputOffset() - start)
	return n, err
}

func (n *node) readMembers(dec *jsontext.Decoder, depth int) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		name, err := readName(dec)
		if err != nil {
			return err
		}
		value, err := readNode(dec, depth+1)
		if err != nil {
			return err
		}
		if len(n.members) == maxMembers {
			return errMembers
		}
		n.members = append(n.members, named{name, value})
	}
	_, err := dec.ReadToken()
	return err
}

// readName reads the name of a member. Those of every chunk are not allocated anew.
func readName(dec *jsontext.Decoder) (string, error) {
	raw, err := dec.ReadValue()
	if err != nil {
		return "", err
	}
	switch string(raw) {
	case `"id"`:
		return "id", nil
	case `"object"`:
		return "object", nil
	case `"created"`:
		return "created", nil
	case `"model"`:
		return "model", nil
	case `"service_tier"`:
		return "service_tier", nil
	case `"system_fingerprint"`:
		return "system_fingerprint", nil
	case `"choices"`:
		return "choices", nil
	case `"index"`:
		return "index", nil
	case `"delta"`:
		return "delta", nil
	case `"content"`:
		return "content", nil
	case `"logprobs"`:
		return "logprobs", nil
	case `"finish_reason"`:
		return "finish_reason", nil
	case `"usage"`:
		return "usage", nil
	case `"obfuscation"`:
		return "obfuscation", nil
	}
	name, err := jsontext.AppendUnquote(nil, raw)
	return string(name), err
}

func (n *node) readItems(dec *jsontext.Decoder, depth int) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		item, err := readNode(dec, depth+1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	_, err := dec.ReadToken()
	return err
}

// get is the member of that name, nil if there is none; a nil node and one that is no object have none.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for i := range n.members {
		if n.members[i].name == name {
			return n.members[i].value
		}
	}
	return nil
}

// set puts a member in its place, or at the end if it is new.
func (n *node) set(name string, value *node) {
	for i := range n.members {
		if n.members[i].name == name {
			n.members[i].value = value
			return
		}
	}
	n.members = append(n.members, named{name, value})
}

// isNull reports a null and an absent value.
func (n *node) isNull() bool { return n == nil || n.kind == 'n' }

// isText reports whether the value is that string.
func (n *node) isText(s string) bool { return n != nil && n.kind == '"' && string(n.text) == s }

// empty reports a value that says nothing: absent, null, "", [], {}.
func (n *node) empty() bool {
	if n.isNull() {
		return true
	}
	switch n.kind {
	case '"':
		return len(n.text) == 0
	case '[':
		return len(n.items) == 0
	case '{':
		return len(n.members) == 0
	}
	return false
}

// equal compares two values; the order of members counts, for it is cheaper and a provider repeats itself verbatim.
func (n *node) equal(o *node) bool {
	if n.kind != o.kind || !bytes.Equal(n.text, o.text) || len(n.members) != len(o.members) || len(n.items) != len(o.items) {
		return false
	}
	for i := range n.members {
		if n.members[i].name != o.members[i].name || !n.members[i].value.equal(o.members[i].value) {
			return false
		}
	}
	for i := range n.items {
		if !n.items[i].equal(o.items[i]) {
			return false
		}
	}
	return true
}

// index is the non-negative integer in the member "index", by which streams name choices and tool calls.
func (n *node) index() (int, bool) {
	at := n.get("index")
	if at == nil || at.kind != '0' || len(at.text) > 6 {
		return 0, false
	}
	i := 0
	for _, c := range at.text {
		if c < '0' || c > '9' {
			return 0, false
		}
		i = 10*i + int(c-'0')
	}
	return i, true
}

// append writes the value as JSON. Text came out of valid JSON, so quoting it cannot fail.
func (n *node) append(dst []byte) []byte {
	switch n.kind {
	case '{':
		return appendObject(dst, n.members)
	case '[':
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.append(dst)
		}
		return append(dst, ']')
	case '"':
		return appendQuoted(dst, n.text)
	}
	return append(dst, n.text...)
}

func appendObject(dst []byte, members []named) []byte {
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendQuoted(dst, m.name)
		dst = append(dst, ':')
		dst = m.value.append(dst)
	}
	return append(dst, '}')
}

func appendQuoted[T ~[]byte | ~string](dst []byte, text T) []byte {
	dst, _ = jsontext.AppendQuote(dst, text) // the error is about invalid UTF-8, which a decoder lets through nowhere
	return dst
}

func textNode(s string) *node { return &node{kind: '"', text: []byte(s), size: len(s) + 2} }

// null is every null: a node of that kind is replaced, never changed.
var null = &node{kind: 'n', text: []byte("null"), size: 4}

func intNode(i int) *node {
	text := fmt.Appendf(nil, "%d", i)
	return &node{kind: '0', text: text, size: len(text)}
}
