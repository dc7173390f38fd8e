package demo

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxBody is the largest request body, in bytes.
	maxBody = 16 << 20
	// maxChoices is the largest n that OpenAI's API takes.
	maxChoices = 128
	// maxEcho is how much of the user's message the answer repeats, in characters.
	maxEcho = 400
)

// request is the part of a chat completion request that the demo provider looks at; it ignores the rest.
type request struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	MaxTokens           *int           `json:"max_tokens"`
	MaxCompletionTokens *int           `json:"max_completion_tokens"`
	N                   *int           `json:"n"`
	Stream              *bool          `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options"`
}

type streamOptions struct {
	IncludeUsage *bool `json:"include_usage"`
}

type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is the text of a message: a string, null, or the joined text of its parts. Parts without text count nothing.
type content string

// UnmarshalJSONFrom reads any of the three forms.
func (c *content) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch d.PeekKind() {
	case '[':
		var parts []struct {
			Text string `json:"text"`
		}
		if err := json.UnmarshalDecode(d, &parts); err != nil {
			return err
		}
		var text strings.Builder
		for _, part := range parts {
			text.WriteString(part.Text)
		}
		*c = content(text.String())
		return nil
	case '"', 'n':
		var text string
		err := json.UnmarshalDecode(d, &text)
		*c = content(text)
		return err
	}
	return errors.New("content must be a string, null or an array of parts")
}

// refusal is an error in OpenAI's shape.
type refusal struct {
	status  int
	message string
	kind    string
	param   string
	code    string
}

// Error is the message.
func (r *refusal) Error() string { return r.message }

// invalid is the refusal of a bad parameter.
func invalid(param, format string, args ...any) *refusal {
	return &refusal{
		status: http.StatusBadRequest, message: fmt.Sprintf(format, args...), kind: "invalid_request_error", param: param,
	}
}

// readRequest reads and checks a request. Its error is a *refusal, or that of a connection that broke.
func readRequest(w http.ResponseWriter, r *http.Request) (*request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &refusal{
			status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body is larger than %d bytes", maxBody),
			kind: "invalid_request_error",
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return parseRequest(body)
}

// parseRequest decodes strictly (duplicate keys, wrong types, invalid UTF-8 and text after the object are errors) and
// checks what it uses.
func parseRequest(body []byte) (*request, error) {
	var q request
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, invalid("", "could not parse the JSON body of your request: %v", err)
	}
	if err := q.check(); err != nil {
		return nil, err
	}
	return &q, nil
}

// check returns what is wrong first. It returns error, not *refusal: a nil *refusal would be no nil error.
func (q *request) check() error {
	if q.Model == "" {
		return invalid("model", "you must provide a model")
	}
	if len(q.Messages) == 0 {
		return invalid("messages", "messages must have at least one item")
	}
	for i, m := range q.Messages {
		switch m.Role {
		case "system", "developer", "user", "assistant", "tool", "function":
		default:
			return invalid(fmt.Sprintf("messages[%d].role", i), "messages[%d].role: %q is no role", i, m.Role)
		}
	}
	if q.MaxTokens != nil && q.MaxCompletionTokens != nil {
		return invalid("max_tokens", "max_tokens and max_completion_tokens cannot both be set")
	}
	for _, limit := range []struct {
		name  string
		value *int
		most  int
	}{
		{"max_tokens", q.MaxTokens, 1 << 30},
		{"max_completion_tokens", q.MaxCompletionTokens, 1 << 30},
		{"n", q.N, maxChoices},
	} {
		if v := limit.value; v != nil && (*v < 1 || *v > limit.most) {
			return invalid(limit.name, "%s is %d: it must be from 1 to %d", limit.name, *v, limit.most)
		}
	}
	if q.StreamOptions != nil && !q.stream() {
		return invalid("stream_options", "stream_options is only allowed when stream is true")
	}
	return nil
}

func (q *request) stream() bool { return q.Stream != nil && *q.Stream }

func (q *request) includeUsage() bool {
	return q.StreamOptions != nil && q.StreamOptions.IncludeUsage != nil && *q.StreamOptions.IncludeUsage
}

// choices is n.
func (q *request) choices() int {
	if q.N == nil {
		return 1
	}
	return *q.N
}

// prompt counts the tokens of the messages.
func (q *request) prompt() int {
	n := 0
	for _, m := range q.Messages {
		n += messageTokens + CountTokens(string(m.Content))
	}
	return n
}

// answer is the text of every choice in tokens, and why it ends there: "stop" or "length".
func (q *request) answer() (tokens []string, finish string) {
	tokens = split(replyText(q.lastUser()))
	limit := q.MaxTokens
	if limit == nil {
		limit = q.MaxCompletionTokens
	}
	if limit != nil && *limit < len(tokens) {
		return tokens[:*limit], "length"
	}
	return tokens, "stop"
}

// lastUser is the text of the last user message.
func (q *request) lastUser() string {
	for i := len(q.Messages) - 1; i >= 0; i-- {
		if q.Messages[i].Role == "user" {
			return string(q.Messages[i].Content)
		}
	}
	return ""
}

// replyText is the whole answer to a user's message.
func replyText(user string) string {
	const intro = "This is tollgate's built-in demo provider: no model ran. "
	const outro = " The key, its budget, the limits and the bill are real; give a deployment a url to reach a real provider."
	if strings.TrimSpace(user) == "" {
		return intro + "There was no user message." + outro
	}
	if utf8.RuneCountInString(user) > maxEcho {
		user = string([]rune(user)[:maxEcho]) + "..."
	}
	return intro + "You said: " + user + "\n" + outro[1:]
}
