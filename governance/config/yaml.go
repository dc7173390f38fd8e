package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxDepth bounds how deep collections nest. The parser is recursive; the configuration needs nine levels.
const maxDepth = 64

// parseYAML gives the root of the one document in data, nil when there is none. Its problems carry a line and never an
// excerpt: the neighbourhood of an error can hold secrets.
func parseYAML(data []byte) (ast.Node, *Finding) {
	if line := badText(data); line > 0 {
		return nil, &Finding{Line: line, Message: "must be UTF-8 text without control characters"}
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	tokens := lexer.Tokenize(text)
	if line := tooDeep(tokens); line > 0 {
		return nil, &Finding{Line: line, Message: fmt.Sprintf("nests deeper than %d levels", maxDepth)}
	}
	// Duplicate keys are found while the tree is built, all of them and with both lines.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxProblem(err, text)
	}
	var root ast.Node
	for i, doc := range file.Docs {
		switch {
		case doc.Body != nil && doc.Body.Type() == ast.DirectiveType:
			return nil, &Finding{Line: doc.Body.GetToken().Position.Line, Message: "YAML directives (%) are not supported"}
		case i > 0:
			return nil, &Finding{Line: doc.Start.Position.Line, Message: "a second document (---) is not read; join the two, or use include"}
		}
		root = doc.Body
	}
	return root, nil
}

// badText is the line of the first byte that is no text; 0 when all is well.
func badText(data []byte) int {
	for line := 1; len(data) > 0; {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1, r < ' ' && r != '\n' && r != '\r' && r != '\t', r == 0x7f:
			return line
		case r == '\n':
			line++
		}
		data = data[size:]
	}
	return 0
}

// tooDeep is the line where collections in flow style, or dashes in one line, nest deeper than maxDepth; 0 when none do.
// Blocks need a column for each level, so the size of the file bounds them.
func tooDeep(tokens token.Tokens) int {
	depth, dashes, dashLine := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			if t.Position.Line != dashLine {
				dashes, dashLine = 0, t.Position.Line
			}
			dashes++
		}
		if depth > maxDepth || dashes > maxDepth {
			return t.Position.Line
		}
	}
	return 0
}

// syntaxProblem turns the parser's error into a finding. What the parser quotes is cut off, for it can be a value.
func syntaxProblem(err error, text string) *Finding {
	found := &Finding{Message: "not valid YAML"}
	var syntax interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if !errors.As(err, &syntax) {
		return found
	}
	message, _, _ := strings.Cut(syntax.GetMessage(), `"`)
	found.Message += ": " + strings.TrimRight(message, ": ")
	t := syntax.GetToken()
	if t == nil || t.Position == nil {
		return found
	}
	found.Line = t.Position.Line
	lines := strings.SplitN(text, "\n", found.Line+1)
	if found.Line > len(lines) {
		return found
	}
	switch line := lines[found.Line-1]; {
	case strings.Contains(line, "${"):
		found.Message += ` (inside { } and [ ] a variable needs quotes: "${NAME}")`
	case bareMark.MatchString(line):
		found.Message += " (a text that begins with *, & or ! needs quotes)"
	}
	return found
}

// bareMark finds a value that begins with a character that means something to YAML.
var bareMark = regexp.MustCompile(`[\[,:-]\s*[*&!]`)
