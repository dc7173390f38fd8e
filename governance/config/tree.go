package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

type nodeKind int

const (
	nullNode nodeKind = iota
	scalarNode
	listNode
	mappingNode
)

// node is one value of the file: a scalar as it was written, after variables were put in, or a collection.
type node struct {
	kind nodeKind
	file string
	line int
	key  string // dotted path

	text     string // of a scalar
	expanded bool   // text came from a variable, at least in part: messages must not show it
	void     bool   // not to be converted: what is wrong with it, or missing, is reported already
	// reference is "env" or "file" when the text as written names a variable or a file as a whole; text is then
	// that name.
	reference string

	entries []entry // of a mapping, in the order of the file, names unique
	items   []*node // of a list
}

type entry struct {
	name  string
	line  int
	value *node
}

// get is the value of a key; nil when it is absent or has no value.
func (n *node) get(name string) *node {
	for _, e := range n.entries {
		if e.name == name && e.value.kind != nullNode {
			return e.value
		}
	}
	return nil
}

// quoted is the text for a message; values that came from a variable stay hidden.
func (n *node) quoted() string {
	if n.expanded {
		return "the value"
	}
	return fmt.Sprintf("%q", n.text)
}

// tree makes nodes of the parser's syntax tree, puts variables in, and reports what this format leaves out. line is
// that of the key the value belongs to, 0 when it has none.
func (d *decoder) tree(from ast.Node, file, key string, line int) *node {
	n := &node{file: file, key: key, line: line}
	if from == nil {
		return n
	}
	_, isMapping := from.(*ast.MappingNode)
	_, isList := from.(*ast.SequenceNode)
	if t := from.GetToken(); t != nil && t.Position != nil && (line == 0 || !isMapping && !isList) {
		n.line = t.Position.Line
	}
	switch from := from.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		n.kind = mappingNode
		d.fillMapping(n, from)
	case *ast.SequenceNode:
		n.kind = listNode
		for i, item := range from.Values {
			n.items = append(n.items, d.tree(item, file, fmt.Sprintf("%s[%d]", key, i), 0))
		}
	case *ast.LiteralNode:
		d.fillScalar(n, from.Value.Value)
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		// The token keeps what was written: 00123 and 1.10 lose digits in the node's own value.
		d.fillScalar(n, from.GetToken().Value)
	default:
		d.fail(n, "%s", unsupported(from))
	}
	return n
}

// unsupported says what is wrong with a construct that the format leaves out. A shared fragment would make a change in
// one place move money in another, and merged keys hide which value counts.
func unsupported(from ast.Node) string {
	switch from.(type) {
	case *ast.AnchorNode, *ast.AliasNode:
		return "anchors (&) and aliases (*) are not supported; a text that begins with * or & needs quotes"
	case *ast.TagNode:
		return "tags (!) are not supported; a text that begins with ! needs quotes"
	}
	return "this YAML construct is not supported"
}

func (d *decoder) fillMapping(n *node, from *ast.MappingNode) {
	first := make(map[string]int, len(from.Values))
	for _, pair := range from.Values {
		at := &node{file: n.file, key: n.key, line: pair.Key.GetToken().Position.Line}
		switch pair.Key.(type) {
		case *ast.MergeKeyNode:
			d.fail(at, "merge keys (<<) are not supported; write the values out")
			continue
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		default:
			d.fail(at, "a key must be plain text")
			continue
		}
		name := pair.Key.GetToken().Value
		at.key = join(n.key, name)
		if line, twice := first[name]; twice {
			d.fail(at, "stands twice; first in line %d", line)
			continue
		}
		first[name] = at.line
		n.entries = append(n.entries, entry{name, at.line, d.tree(pair.Value, n.file, at.key, at.line)})
	}
}

func (d *decoder) fillScalar(n *node, raw string) {
	n.kind = scalarNode
	text, used, unset, err := expand(raw, d.env)
	if err != nil {
		d.fail(n, "%v", err)
		n.void = true
		return
	}
	n.expanded = used
	for _, name := range unset {
		d.missing(n, "environment variable %s is not set", name)
	}
	// Decided by what is written: a variable that holds "env:X" is no reference.
	if n.reference = reference(raw); n.reference != "" {
		text = strings.TrimPrefix(text, n.reference+":")
	}
	n.text = text
}

// join is the dotted path of a key inside another.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
