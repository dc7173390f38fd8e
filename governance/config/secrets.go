package config

import (
	"encoding/pem"
	"errors"
	"io/fs"
	"strings"
)

// sensitive is the text of a scalar that may be given as env:NAME or file:PATH: a secret, a URL or PEM. One trailing
// line break of a file is dropped. ok is false when there is nothing to use; the reason is then reported. What was read
// takes the place of the reference in the tree.
func (d *decoder) sensitive(n *node) (text string, ok bool) {
	if n.void || n.reference == "" || n.kind != scalarNode {
		return d.plain(n)
	}
	if n.reference == "env" {
		text, ok = d.fromEnvironment(n)
	} else {
		text, ok = d.fromFile(n)
	}
	n.text, n.reference, n.expanded, n.void = text, "", true, !ok
	return text, ok
}

func (d *decoder) fromEnvironment(n *node) (string, bool) {
	if !variableName(n.text) {
		d.fail(n, "env: must be followed by the name of a variable")
		return "", false
	}
	value, set := d.env(n.text)
	if !set {
		d.missing(n, "environment variable %s is not set", n.text)
	}
	return value, set
}

func (d *decoder) fromFile(n *node) (string, bool) {
	if n.text == "" {
		d.fail(n, "file: must be followed by a path")
		return "", false
	}
	data, ok := d.read(n, n.path(n.text))
	text := strings.TrimSuffix(string(data), "\n")
	return strings.TrimSuffix(text, "\r"), ok
}

// read is the contents of a file that a value names; a file that cannot be read is missing.
func (d *decoder) read(n *node, path string) ([]byte, bool) {
	data, source, err := readSource(path)
	d.cfg.Sources = append(d.cfg.Sources, source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.missing(n, "file %s does not exist", path)
	case err != nil:
		d.missing(n, "%v", err)
	}
	return data, err == nil
}

// secret is a password, token or key: not empty, in one line. A line break would end the header it is sent in, and a
// stray blank at an end makes every call fail at the provider.
func (d *decoder) secret(n *node) (string, bool) {
	text, ok := d.sensitive(n)
	if !ok {
		return "", false
	}
	if wrong := secretRule(text); wrong != "" {
		d.fail(n, "%s", wrong)
		return "", false
	}
	return text, true
}

func secretRule(text string) string {
	switch {
	case text == "":
		return "is empty"
	case strings.ContainsAny(text, "\r\n"):
		return "has a line break inside"
	case strings.TrimSpace(text) != text:
		return "begins or ends with a blank"
	}
	for _, c := range []byte(text) {
		if c < ' ' || c == 0x7f {
			return "has a control character inside"
		}
	}
	return ""
}

func (s *section) secret(name string, into *string) {
	if n := s.get(name); n != nil {
		if v, ok := s.d.secret(n); ok {
			*into = v
		}
	}
}

// pem stores PEM text that has at least one block of the type, by the end of its name: "PRIVATE KEY" stands for RSA's
// and EC's too.
func (s *section) pem(name string, into *string, blockType string) {
	n := s.get(name)
	if n == nil {
		return
	}
	text, ok := s.d.sensitive(n)
	if !ok {
		return
	}
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			s.d.fail(n, "must be PEM with a %s", blockType)
			return
		}
		if strings.HasSuffix(block.Type, blockType) {
			*into = text
			return
		}
	}
}
