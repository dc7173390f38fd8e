package providertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// Recorder passes requests on to a real provider unchanged and keeps both bodies. Streams pass as they come.
type Recorder struct {
	server *httptest.Server

	mu        sync.Mutex
	exchanges []*Exchange
}

// Exchange is a request and its answer.
type Exchange struct {
	// At is when the request's headers had arrived.
	At      time.Time
	Method  string
	Path    string // as sent, the query included
	Header  http.Header
	Request []byte

	// Status is 0 until the upstream has answered; 502 also when it did not.
	Status         int
	ResponseHeader http.Header
	Response       []byte
	// Whole says that the upstream's answer was read to its end.
	Whole bool
}

// NewRecorder starts a recorder before target, an http:// URL, that lives until the test ends.
func NewRecorder(t testing.TB, target string) *Recorder {
	t.Helper()
	upstream, err := url.Parse(target)
	if err != nil || upstream.Host == "" {
		t.Fatalf("recorder target %q is no URL: %v", target, err)
	}
	r := &Recorder{}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(upstream) },
		FlushInterval:  -1,
		ModifyResponse: r.answered,
		// The error is what the client sees.
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			exchange := exchangeOf(req)
			r.mu.Lock()
			exchange.Status = http.StatusBadGateway
			r.mu.Unlock()
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req, err := r.begin(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest) // the client has gone, or made a mistake
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(r.server.Close)
	return r
}

// URL is the recorder's address as http://host:port.
func (r *Recorder) URL() string { return r.server.URL }

// Exchanges are all exchanges in the order of arrival, those under way included with what passed so far.
func (r *Recorder) Exchanges() []Exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Exchange, len(r.exchanges))
	for i, exchange := range r.exchanges {
		all[i] = *exchange
		all[i].Request = slices.Clone(exchange.Request)
		all[i].Response = slices.Clone(exchange.Response)
	}
	return all
}

// Reset forgets all exchanges.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exchanges = nil
}

// exchangeKey is the context key of the request's *Exchange.
type exchangeKey struct{}

// begin logs a request and ties it to its exchange. It reads the body whole first: an HTTP/1.1 server closes what is
// left of a request's body when the answer begins, and a proxy that is still reading then breaks the exchange off.
func (r *Recorder) begin(req *http.Request) (*http.Request, error) {
	exchange := &Exchange{At: time.Now(), Method: req.Method, Path: req.RequestURI, Header: req.Header.Clone()}
	r.mu.Lock()
	r.exchanges = append(r.exchanges, exchange)
	r.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	exchange.Request = body
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	req = req.WithContext(context.WithValue(req.Context(), exchangeKey{}, exchange))
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return req, nil
}

// answered logs the head of an answer, and its body as it is read.
func (r *Recorder) answered(answer *http.Response) error {
	exchange := exchangeOf(answer.Request)
	r.mu.Lock()
	defer r.mu.Unlock()
	exchange.Status, exchange.ResponseHeader = answer.StatusCode, answer.Header.Clone()
	answer.Body = &recorded{ReadCloser: answer.Body, keep: func(read []byte, whole bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		exchange.Response = append(exchange.Response, read...)
		exchange.Whole = exchange.Whole || whole
	}}
	return nil
}

// exchangeOf is the exchange that begin tied to a request; the proxy's own copy of it keeps the context.
func exchangeOf(req *http.Request) *Exchange {
	exchange, ok := req.Context().Value(exchangeKey{}).(*Exchange)
	if !ok {
		return &Exchange{}
	}
	return exchange
}

// recorded is a body that shows what is read from it, and whether it was read to its end.
type recorded struct {
	io.ReadCloser
	keep func(read []byte, whole bool)
}

// Read reads and shows.
func (r *recorded) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.keep(p[:n], errors.Is(err, io.EOF))
	return n, err
}
