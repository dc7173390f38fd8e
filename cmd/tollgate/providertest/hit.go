package providertest

import (
	"net/http"
	"time"
)

// Hit is one request that reached the provider, and what became of it.
type Hit struct {
	// Conn numbers the connection, from 1 in the order of acceptance.
	Conn int
	// At is when the request had arrived whole; Ended when its answer was written or the client had gone.
	At, Ended time.Time

	Method string
	// Path is the request target as sent, the query included.
	Path   string
	Host   string
	Header http.Header
	// Body is the body without transfer encoding; its content encoding is left as it is.
	Body []byte
	// Raw are all bytes of the request as they came.
	Raw []byte

	// Reply is what was answered.
	Reply Reply
	// Done says that the answer was written to where its script ends, Gone that the client left before; neither while it
	// is under way.
	Done, Gone bool
}
