package providertest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Reply is what a provider answers to one request.
type Reply struct {
	// Delay passes between the request's last byte and the answer's first.
	Delay time.Duration
	// Break says where the answer ends early; the zero value: nowhere.
	Break Break

	// Status is the HTTP status; 0 means 200.
	Status int
	// Header is sent as it is, names in the order of their letters. Content-Length and Transfer-Encoding are added when the
	// header has neither.
	Header http.Header
	// Body is the body. Without Chunks it is sent at once, with a content-length.
	Body []byte
	// Chunks are written one by one after Body, each in a segment of its own.
	Chunks []Chunk
	// ContentLength declares the length of a body in Chunks too, instead of the chunked encoding: some providers do so
	// with SSE. A length in Header is sent as it stands, right or wrong.
	ContentLength bool

	// Usage is what the body reports, for the books of a test. The provider itself does not read it.
	Usage Usage
}

// Chunk is a piece of a body.
type Chunk struct {
	// After passes before the piece is written.
	After time.Duration
	Data  []byte
}

// Break is where an answer ends early.
type Break string

// The ways in which an answer ends early.
const (
	// NoBreak: the answer is whole.
	NoBreak Break = ""
	// ResetBeforeHeaders: the connection is reset instead of an answer.
	ResetBeforeHeaders Break = "reset before headers"
	// ResetAfterHeaders: the status and the headers are sent, then a reset.
	ResetAfterHeaders Break = "reset after headers"
	// ResetAfterBody: Body and Chunks are sent, then a reset in place of the body's end.
	ResetAfterBody Break = "reset after body"
	// CloseAfterBody: as ResetAfterBody, with an orderly close.
	CloseAfterBody Break = "close after body"
	// HangBeforeHeaders: nothing is sent until the client goes or the test ends.
	HangBeforeHeaders Break = "hang before headers"
	// HangAfterBody: Body and Chunks are sent, then nothing more until the client goes or the test ends.
	HangAfterBody Break = "hang after body"
)

// Usage is a number of tokens as OpenAI counts them: cached ones are part of the prompt, reasoning of the completion.
type Usage struct {
	Prompt, Cached, Completion, Reasoning int
}

// JSON is an answer with a JSON body.
func JSON(status int, body string) Reply {
	return Reply{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
}

// SSE is an answer of server-sent events, each written in a segment of its own. An event is its whole text without the
// empty line that ends it, such as "data: [DONE]".
func SSE(events ...string) Reply {
	r := Reply{Header: http.Header{"Content-Type": {"text/event-stream"}}}
	for _, event := range events {
		r.Chunks = append(r.Chunks, Chunk{Data: []byte(event + "\n\n")})
	}
	return r
}

// Split cuts data into chunks of size bytes; the last may be shorter. Size 1 is the hardest for a parser.
func Split(data []byte, size int) []Chunk {
	var chunks []Chunk
	for len(data) > 0 {
		n := min(max(size, 1), len(data))
		chunks = append(chunks, Chunk{Data: data[:n]})
		data = data[n:]
	}
	return chunks
}

// Paced is the reply with d before each of its chunks.
func (r Reply) Paced(d time.Duration) Reply {
	chunks := make([]Chunk, len(r.Chunks))
	for i, chunk := range r.Chunks {
		chunks[i] = Chunk{After: d, Data: chunk.Data}
	}
	r.Chunks = chunks
	return r
}

// Resplit is the reply with the same body, written in pieces of size bytes. It says nothing of delays.
func (r Reply) Resplit(size int) Reply {
	whole := append([]byte(nil), r.Body...)
	for _, chunk := range r.Chunks {
		whole = append(whole, chunk.Data...)
	}
	r.Body, r.Chunks = nil, Split(whole, size)
	return r
}

// framing says how the end of the body is found.
type framing struct {
	// head is what is added to the headers.
	head string
	// chunked says that each piece is wrapped in the chunked encoding.
	chunked bool
}

func (r Reply) framing() framing {
	for name := range r.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length":
			return framing{}
		case "Transfer-Encoding":
			return framing{chunked: strings.EqualFold(r.Header.Get(name), "chunked")}
		}
	}
	if status := r.status(); status == http.StatusNoContent || status == http.StatusNotModified {
		return framing{}
	}
	if len(r.Chunks) > 0 && !r.ContentLength {
		return framing{head: "Transfer-Encoding: chunked\r\n", chunked: true}
	}
	size := len(r.Body)
	for _, chunk := range r.Chunks {
		size += len(chunk.Data)
	}
	return framing{head: "Content-Length: " + strconv.Itoa(size) + "\r\n"}
}

func (r Reply) status() int {
	if r.Status == 0 {
		return http.StatusOK
	}
	return r.Status
}
