package journal

import "time"

// payload takes a record's payload apart. What it returns points into the one string it is made of. A wrong byte sets
// bad, and everything after it reads as empty.
type payload struct {
	rest string
	bad  bool
}

// script reads a script; ok is false for anything else.
func (p *payload) script() (s Script, ok bool) {
	s = Script{Name: p.string(), Source: p.string()}
	return s, p.complete()
}

// entry reads an entry, whose script is known by its digest only.
func (p *payload) entry() (e Entry, script digest, ok bool) {
	e.At = time.UnixMilli(p.varint()).UTC()
	e.Seq = p.varint()
	copy(script[:], p.take(uint64(len(script))))
	e.Owner, e.Writer = p.string(), p.string()
	e.Keys, e.Args = p.strings(), p.strings()
	return e, script, p.complete()
}

func (p *payload) complete() bool { return !p.bad && p.rest == "" }

func (p *payload) take(n uint64) string {
	if n > uint64(len(p.rest)) {
		p.bad, p.rest = true, ""
		return ""
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

func (p *payload) byte() byte {
	s := p.take(1)
	if s == "" {
		return 0
	}
	return s[0]
}

func (p *payload) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b := p.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	p.bad = true
	return 0
}

// varint reads what binary.AppendVarint wrote.
func (p *payload) varint() int64 {
	u := p.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (p *payload) string() string { return p.take(p.uvarint()) }

func (p *payload) strings() []string {
	n := p.uvarint()
	if n == 0 {
		return nil
	}
	if n > uint64(len(p.rest)) { // each takes a byte at least
		p.bad, p.rest = true, ""
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = p.string()
	}
	return list
}
