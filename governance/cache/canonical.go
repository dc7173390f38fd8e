package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// canonical writes a JSON document in a form that is the same for all documents of the same meaning, and for no others.
// The form is binary and made only to be hashed:
//
//	string     '"' length bytes, unescaped; longer than inlined: 's' SHA-256 of the bytes
//	number     'n' sign digits 'e' exponent ';', the exact decimal value: 1, 1.0 and 10e-1 are one number, 2^53 and
//	           2^53+1 are two
//	literal    't', 'f' or 'z'
//	container  '[' values ']' or '{' strings and values, sorted by name '}'; longer than inlined: 'c' SHA-256 of that
//
// Hashing what is long keeps the output small (images are not copied) and sorting cheap: each byte is moved and hashed
// a bounded number of times, however deep the document is.
type canonical struct {
	dec     *jsontext.Decoder
	in      bytes.Buffer // what dec reads: body, in place
	body    []byte
	out     []byte
	scratch []byte
	names   []byte   // unescaped names of the open objects' members
	members []member // a stack, as names: nested objects push above their parents'
}

// member is an object's member: where its name stands in names and its form in out.
type member struct {
	name, nameEnd int
	start, end    int
}

// inlined is the length, in bytes, up to which a value stands in its parent's form as it is.
const inlined = 1024

// kept bounds what a pooled canonical may hold on to, in bytes.
const kept = 64 << 10

var canonicals = sync.Pool{New: func() any { return &canonical{dec: new(jsontext.Decoder)} }}

// newCanonical takes one from the pool for a body, which must not change until release.
func newCanonical(body []byte) *canonical {
	c := canonicals.Get().(*canonical)
	c.body, c.in = body, *bytes.NewBuffer(body)
	c.dec.Reset(&c.in)
	return c
}

func (c *canonical) release() {
	c.body, c.in = nil, bytes.Buffer{}
	c.dec.Reset(&c.in)
	c.out, c.scratch, c.names, c.members = c.out[:0], c.scratch[:0], c.names[:0], c.members[:0]
	if cap(c.out) <= kept && cap(c.scratch) <= kept && cap(c.names) <= kept && cap(c.members) <= kept/32 {
		canonicals.Put(c)
	}
}

// request writes the whole body: one object without the members that do not count.
func (c *canonical) request() error {
	if c.dec.PeekKind() != '{' {
		if _, err := c.dec.ReadValue(); err != nil {
			return fmt.Errorf("request body: %w", err)
		}
		return errors.New("request body: not a JSON object")
	}
	if err := c.object(c.topMember); err != nil {
		if errors.Is(err, ErrUncacheable) {
			return err
		}
		return fmt.Errorf("request body: %w", err)
	}
	if _, err := c.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("request body: data after the JSON object")
	}
	return nil
}

// value writes the next value.
func (c *canonical) value() error {
	start := len(c.out)
	switch c.dec.PeekKind() {
	case '{':
		if err := c.object(c.anyMember); err != nil {
			return err
		}
		c.shorten(start)
		return nil
	case '[':
		if err := c.array(); err != nil {
			return err
		}
		c.shorten(start)
		return nil
	}
	raw, err := c.dec.ReadValue()
	if err != nil {
		return err
	}
	switch raw.Kind() {
	case '"':
		return c.text(raw)
	case '0':
		c.out, err = appendNumber(c.out, raw)
		return err
	case 't':
		c.out = append(c.out, 't')
	case 'f':
		c.out = append(c.out, 'f')
	default:
		c.out = append(c.out, 'z')
	}
	return nil
}

func (c *canonical) array() error {
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	c.out = append(c.out, '[')
	for c.dec.PeekKind() != ']' {
		if err := c.value(); err != nil {
			return err
		}
	}
	c.out = append(c.out, ']')
	_, err := c.dec.ReadToken()
	return err
}

// object writes an object whose members write handles; those that write nothing are left out.
func (c *canonical) object(write func(name []byte) error) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	c.out = append(c.out, '{')
	firstMember, firstName, begin := len(c.members), len(c.names), len(c.out)
	for c.dec.PeekKind() != '}' {
		raw, err := c.dec.ReadValue()
		if err != nil {
			return err
		}
		m := member{name: len(c.names), start: len(c.out)}
		if c.names, err = jsontext.AppendUnquote(c.names, raw); err != nil {
			return err
		}
		m.nameEnd = len(c.names)
		if err := write(c.names[m.name:m.nameEnd]); err != nil {
			return err
		}
		if m.end = len(c.out); m.end > m.start {
			c.members = append(c.members, m)
		}
	}
	c.sort(firstMember, begin)
	c.members, c.names = c.members[:firstMember], c.names[:firstName]
	c.out = append(c.out, '}')
	_, err := c.dec.ReadToken()
	return err
}

// anyMember writes a member of a nested object.
func (c *canonical) anyMember(name []byte) error {
	c.appendText(name)
	return c.value()
}

// sort brings the members from index first on, whose forms fill out from begin on, into the order of their names.
func (c *canonical) sort(first, begin int) {
	members := c.members[first:]
	byName := func(a, b member) int {
		return bytes.Compare(c.names[a.name:a.nameEnd], c.names[b.name:b.nameEnd])
	}
	if slices.IsSortedFunc(members, byName) {
		return
	}
	slices.SortFunc(members, byName)
	c.scratch = c.scratch[:0]
	for _, m := range members {
		c.scratch = append(c.scratch, c.out[m.start:m.end]...)
	}
	copy(c.out[begin:], c.scratch)
}

// shorten replaces the container that begins at start by its hash when it is long.
func (c *canonical) shorten(start int) {
	if len(c.out)-start <= inlined {
		return
	}
	sum := sha256.Sum256(c.out[start:])
	c.out = append(append(c.out[:start], 'c'), sum[:]...)
}

// text writes a string as it stands in the document.
func (c *canonical) text(raw jsontext.Value) error {
	content := []byte(raw[1 : len(raw)-1])
	if bytes.IndexByte(content, '\\') >= 0 {
		var err error
		if c.scratch, err = jsontext.AppendUnquote(c.scratch[:0], raw); err != nil {
			return err
		}
		content = c.scratch
	}
	c.appendText(content)
	return nil
}

func (c *canonical) appendText(content []byte) {
	if len(content) > inlined {
		sum := sha256.Sum256(content)
		c.out = append(append(c.out, 's'), sum[:]...)
		return
	}
	c.out = append(c.out, '"')
	c.out = binary.AppendUvarint(c.out, uint64(len(content)))
	c.out = append(c.out, content...)
}
