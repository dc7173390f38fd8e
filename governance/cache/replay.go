package cache

import (
	"errors"
	"fmt"
)

// Framing is how a caller wants an answer.
type Framing struct {
	Stream       bool
	IncludeUsage bool // stream_options.include_usage, of chat streams
}

// ErrFraming is the miss of an entry that cannot serve the framing a caller asks for.
var ErrFraming = errors.New("the cached answer cannot serve this framing")

// Replay is the answer to a caller out of an entry. A chat completion is converted for a streaming caller; other
// endpoints' entries serve only the framing in which they came. The error wraps ErrFraming, and is a miss.
func (e Entry) Replay(endpoint string, want Framing) (contentType string, body []byte, err error) {
	stored := mediaType(e.ContentType)
	switch {
	case want.Stream && stored == contentSSE, !want.Stream && stored == contentJSON:
		return e.ContentType, e.Body, nil
	case want.Stream && stored == contentJSON && endpoint == "chat":
		body, err := Stream(e.Body, want.IncludeUsage)
		if err != nil {
			return "", nil, fmt.Errorf("%w: %w", ErrFraming, err)
		}
		return contentSSE, body, nil
	}
	return "", nil, ErrFraming
}
