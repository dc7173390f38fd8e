package usage

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// MalformedError says why a request body cannot be governed. Its message is meant for the client that sent the body
// and quotes nothing from it; the answer is 400.
type MalformedError struct {
	Param   string // the field at fault as a dotted path; "" when it is the body as a whole
	Message string
}

// Error implements error.
func (e *MalformedError) Error() string { return e.Message }

func malformed(param, format string, args ...any) error {
	return &MalformedError{Param: param, Message: fmt.Sprintf(format, args...)}
}

// invalidJSON translates what the decoder says. The field is named only when it is one of the governed names: any
// other name is the client's own text.
func invalidJSON(err error) error {
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok && errors.Is(err, io.EOF):
		return malformed("", "the body is empty: a json object is expected")
	case !ok:
		return malformed("", "the body is not valid json: %v", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return malformed("", "the body is not valid json: it ends early, after byte %d", syntax.ByteOffset)
	}
	var param string
	for token := range syntax.JSONPointer.Tokens() {
		if isGoverned(token) {
			param = token
		}
		break
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return malformed(param, "the body is ambiguous: a name appears twice in one object, at byte %d", syntax.ByteOffset)
	}
	return malformed(param, "the body is not valid json: %v, at byte %d", syntax.Err, syntax.ByteOffset)
}
