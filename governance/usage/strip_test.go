package usage

import (
	"bytes"
	"encoding/json"
	"strings"
)

// stripReference removes the usage chunks from a stream in the plainest way: all of it at once, with encoding/json. It
// expects well-formed events; an answer that is no stream comes back as it is.
func stripReference(stream []byte) []byte {
	var client, event []byte
	var data []string
	flush := func() {
		if !isUsageChunk(strings.Join(data, "\n")) {
			client = append(client, event...)
		}
		event, data = nil, nil
	}
	rest := stream
	for len(rest) > 0 {
		line, end := cutLine(rest)
		text := strings.TrimPrefix(string(line), "\uFEFF")
		mark := len(line) - len(text)
		client = append(client, line[:mark]...)
		whole := rest[mark : len(line)+end]
		rest = rest[len(line)+end:]
		switch {
		case event == nil && (text == "" || text[0] == ':'):
			client = append(client, whole...)
		default:
			event = append(event, whole...)
			if value, ok := strings.CutPrefix(text, "data:"); ok {
				data = append(data, strings.TrimPrefix(value, " "))
			}
			if text == "" {
				flush()
			}
		}
	}
	flush()
	return client
}

// cutLine returns the first line and the length of its end: LF, CR, CRLF or none.
func cutLine(b []byte) (line []byte, end int) {
	at := bytes.IndexAny(b, "\r\n")
	switch {
	case at < 0:
		return b, 0
	case b[at] == '\r' && at+1 < len(b) && b[at+1] == '\n':
		return b[:at], 2
	}
	return b[:at], 1
}

func isUsageChunk(data string) bool {
	var chunk struct {
		Choices *[]any          `json:"choices"`
		Usage   json.RawMessage `json:"usage"`
		Filter  any             `json:"prompt_filter_results"`
		Error   any             `json:"error"`
	}
	if json.Unmarshal([]byte(data), &chunk) != nil {
		return false
	}
	return chunk.Choices != nil && len(*chunk.Choices) == 0 && chunk.Filter == nil && chunk.Error == nil &&
		bytes.Contains(chunk.Usage, []byte("_tokens"))
}
