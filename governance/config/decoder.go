package config

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder turns trees into one Config and collects every problem on the way. Checks that need the whole file, such as
// references between entries, wait in later until all files are read.
type decoder struct {
	cfg   *Config
	env   func(string) (string, bool)
	errs  Problems
	later []func()
	files []string // in the order they were read
	// resolved are the same files by their real names, so that none is read twice.
	resolved map[string]bool
	// seen has the first entry of each kind and id, for duplicates within and between files.
	seen map[string]map[string]*node

	names         names
	orgOfTeam     map[string]string
	teamOfProject map[string]string
}

func (d *decoder) fail(n *node, format string, args ...any) {
	d.errs = append(d.errs, n.finding(format, args...))
}

func (d *decoder) warn(n *node, format string, args ...any) {
	d.cfg.Warnings = append(d.cfg.Warnings, n.finding(format, args...))
}

// missing records an unset variable or an absent file; the value is then skipped.
func (d *decoder) missing(n *node, format string, args ...any) {
	n.void = true
	d.cfg.Missing = append(d.cfg.Missing, n.finding(format, args...))
}

func (n *node) finding(format string, args ...any) Finding {
	return Finding{File: n.file, Line: n.line, Key: n.key, Message: fmt.Sprintf(format, args...)}
}

// unique reports whether id is the first of its kind; a second one is an error that names the place of the first.
func (d *decoder) unique(kind, id string, n *node) bool {
	if d.seen[kind] == nil {
		d.seen[kind] = make(map[string]*node)
	}
	if first := d.seen[kind][id]; first != nil {
		d.fail(n, "%s %s stands twice; first in %s:%d", kind, n.quoted(), first.file, first.line)
		return false
	}
	d.seen[kind][id] = n
	return true
}

// known reports whether an entry of this kind and id stands in the file.
func (d *decoder) known(kind, id string) bool { return d.seen[kind][id] != nil }

// ids are the ids of a kind, sorted, for hints.
func (d *decoder) ids(kind string) []string { return slices.Sorted(maps.Keys(d.seen[kind])) }

// section reads one mapping. Each read marks its key as known; done reports every key that nothing read.
type section struct {
	d       *decoder
	n       *node
	known   []string
	unknown string // what done says of an unknown key; "" means "unknown key"
}

// section starts a mapping. Anything else is an error and reads like an empty mapping.
func (d *decoder) section(n *node) *section {
	if n.kind != mappingNode {
		if n.kind != nullNode && !n.void {
			d.fail(n, "must be a mapping of keys to values")
		}
		n = &node{file: n.file, line: n.line, key: n.key}
	}
	return &section{d: d, n: n}
}

// get is the value of a key; nil when it is absent or has no value.
func (s *section) get(name string) *node {
	s.known = append(s.known, name)
	return s.n.get(name)
}

// require is get, with an error when the key is absent.
func (s *section) require(name string) *node {
	n := s.get(name)
	if n == nil {
		s.d.fail(s.n, "%s is required", name)
	}
	return n
}

// done reports unknown keys, each with the nearest known one.
func (s *section) done() {
	known := make(map[string]bool, len(s.known))
	for _, name := range s.known {
		known[name] = true
	}
	for _, e := range s.n.entries {
		if !known[e.name] {
			at := &node{file: s.n.file, line: e.line, key: e.value.key}
			s.d.fail(at, "%s%s", cmp.Or(s.unknown, "unknown key"), nearestKey(e.name, s.known))
		}
	}
}

// plain is the text of a scalar that is neither secret, URL nor PEM. ok is false when there is nothing to convert; the
// reason is then reported.
func (d *decoder) plain(n *node) (text string, ok bool) {
	switch {
	case n.void:
		return "", false
	case n.kind == nullNode:
		d.fail(n, "has no value; the text null needs quotes")
		return "", false
	case n.kind != scalarNode:
		d.fail(n, "must be a single value")
		return "", false
	case n.reference != "":
		d.fail(n, "%s: works only in secrets, URLs and PEM; elsewhere write ${NAME}", n.reference)
		return "", false
	}
	return n.text, true
}

// convert reads a scalar through one of the parsers of this package.
func convert[T any](d *decoder, n *node, parse func(string) (T, error)) (T, bool) {
	var zero T
	text, ok := d.plain(n)
	if !ok {
		return zero, false
	}
	v, err := parse(text)
	if err != nil {
		d.fail(n, "%v", err)
		return zero, false
	}
	return v, true
}

// between converts a scalar that has bounds and stores it; least and most are shown as show writes them.
func between[T int64 | time.Duration](s *section, name string, into *T, least, most T, parse func(string) (T, error), show func(T) string) {
	n := s.get(name)
	if n == nil {
		return
	}
	v, ok := convert(s.d, n, parse)
	switch {
	case !ok:
	case v < least:
		s.d.fail(n, "must be at least %s", show(least))
	case v > most:
		s.d.fail(n, "must be at most %s", show(most))
	default:
		*into = v
	}
}

func (s *section) count(name string, into *int64, least, most int64) {
	between(s, name, into, least, most, parseCount, func(n int64) string { return strconv.FormatInt(n, 10) })
}

func (s *section) duration(name string, into *time.Duration, least, most time.Duration) {
	between(s, name, into, least, most, parseDuration, showDuration)
}

func (s *section) bytes(name string, into *int64, least, most int64) {
	between(s, name, into, least, most, parseBytes, showBytes)
}

func (s *section) boolean(name string, into *bool) {
	if n := s.get(name); n != nil {
		if v, ok := convert(s.d, n, parseBool); ok {
			*into = v
		}
	}
}

func (s *section) money(name string, into **Nano) {
	if n := s.get(name); n != nil {
		if v, ok := convert(s.d, n, parseMoney); ok {
			*into = &v
		}
	}
}

// rule says what is wrong with a text, "" when nothing is.
type rule func(string) string

// text stores a scalar that obeys the rule.
func (s *section) text(name string, into *string, check rule) {
	if n := s.get(name); n != nil {
		if v, ok := s.d.ruled(n, check); ok {
			*into = v
		}
	}
}

// ruled is the text of a scalar that obeys the rule.
func (d *decoder) ruled(n *node, check rule) (string, bool) {
	text, ok := d.plain(n)
	if !ok {
		return "", false
	}
	if wrong := check(text); wrong != "" {
		d.fail(n, "%s", wrong)
		return "", false
	}
	return text, true
}

// oneOf stores a scalar that is one of the values.
func oneOf[T ~string](s *section, name string, into *T, values ...T) {
	n := s.get(name)
	if n == nil {
		return
	}
	if v, ok := choice(s.d, n, values); ok {
		*into = v
	}
}

func choice[T ~string](d *decoder, n *node, values []T) (T, bool) {
	text, ok := d.plain(n)
	if !ok {
		return "", false
	}
	all := make([]string, len(values))
	for i, v := range values {
		if T(text) == v {
			return v, true
		}
		all[i] = string(v)
	}
	d.fail(n, "%s is not one of %s%s", n.quoted(), strings.Join(all, ", "), didYouMean(text, all))
	return "", false
}

// items are the elements of a list; nil when it is absent. A single value in place of a list is an error.
func (s *section) items(name string) []*node {
	n := s.get(name)
	if n == nil {
		return nil
	}
	return s.d.list(n)
}

func (d *decoder) list(n *node) []*node {
	if n.kind != listNode {
		if !n.void {
			d.fail(n, "must be a list")
		}
		return nil
	}
	return n.items
}

// texts are the elements of a list of texts, each obeying the rule and none twice.
func (s *section) texts(name string, check rule) []string {
	return s.eachText(name, check, func(*node, string) {})
}

// eachText is texts; visit sees every element that is accepted.
func (s *section) eachText(name string, check rule, visit func(item *node, text string)) []string {
	var out []string
	first := make(map[string]bool)
	for _, item := range s.items(name) {
		v, ok := s.d.ruled(item, check)
		switch {
		case !ok:
		case first[v]:
			s.d.fail(item, "%s stands twice in the list", item.quoted())
		default:
			first[v] = true
			out = append(out, v)
			visit(item, v)
		}
	}
	return out
}

// pairs are the entries of a mapping with free keys; nil when it is absent.
func (s *section) pairs(name string) []entry {
	n := s.get(name)
	switch {
	case n == nil || n.void:
		return nil
	case n.kind != mappingNode:
		s.d.fail(n, "must be a mapping of names to values")
		return nil
	}
	return n.entries
}

// path is a file name: relative ones count from the file they stand in.
func (n *node) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(n.file), name)
}
