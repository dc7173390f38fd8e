package demo

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
)

// defaultDelay is slow enough to be seen and quick enough not to bore.
const defaultDelay = 20 * time.Millisecond

// Options are the settings of the demo provider. The zero value works.
type Options struct {
	// Models are the names that GET /v1/models lists; empty: "demo". A chat may name any model.
	Models []string
	// ChunkDelay passes before each chunk of a stream; 0 means 20 ms, negative none.
	ChunkDelay time.Duration
	// Now is the clock of the created field; nil means time.Now.
	Now func() time.Time
}

// provider is the handler's state.
type provider struct {
	Options
	// answers counts the answers, for their ids.
	answers atomic.Int64
}

// New returns the demo provider. It is safe for concurrent use and starts nothing of its own.
func New(o Options) http.Handler {
	if len(o.Models) == 0 {
		o.Models = []string{"demo"}
	}
	if o.ChunkDelay == 0 {
		o.ChunkDelay = defaultDelay
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &provider{Options: o}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/chat/completions", only(http.MethodPost, p.chat))
	mux.HandleFunc("/v1/models", only(http.MethodGet, p.list))
	mux.HandleFunc("/v1/models/{model...}", only(http.MethodGet, p.model))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &refusal{
			status: http.StatusNotFound, kind: "invalid_request_error", code: "unknown_url",
			message: fmt.Sprintf("unknown request URL: %q %q; the demo provider answers chat completions and models only", r.Method, r.URL.Path),
		})
	})
	return mux
}

// only refuses other methods. GET stands for HEAD too.
func only(method string, handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
			handle(w, r)
			return
		}
		w.Header().Set("Allow", method)
		refuse(w, &refusal{
			status: http.StatusMethodNotAllowed, kind: "invalid_request_error", code: "method_not_supported",
			message: fmt.Sprintf("%q is not allowed on %q: use %s", r.Method, r.URL.Path, method),
		})
	}
}

// chat answers POST /v1/chat/completions.
func (p *provider) chat(w http.ResponseWriter, r *http.Request) {
	q, err := readRequest(w, r)
	if bad := (*refusal)(nil); errors.As(err, &bad) {
		refuse(w, bad)
		return
	}
	if err != nil {
		// The client's connection broke: nobody reads an answer.
		return
	}
	base := completion{
		ID:      fmt.Sprintf("chatcmpl-demo-%d", p.answers.Add(1)),
		Created: p.Now().Unix(),
		Model:   q.Model,
	}
	if q.stream() {
		p.stream(w, r, q, base)
		return
	}
	tokens, finish := q.answer()
	whole := strings.Join(tokens, "")
	base.Object = "chat.completion"
	base.Usage = newUsage(q, len(tokens))
	for i := range q.choices() {
		base.Choices = append(base.Choices, choice{
			Index: i, Message: &text{Role: "assistant", Content: &whole}, FinishReason: &finish,
		})
	}
	write(w, http.StatusOK, base)
}

// list answers GET /v1/models.
func (p *provider) list(w http.ResponseWriter, _ *http.Request) {
	models := modelList{Object: "list"}
	for _, name := range p.Models {
		models.Data = append(models.Data, newModel(name))
	}
	write(w, http.StatusOK, models)
}

// model answers GET /v1/models/{model}.
func (p *provider) model(w http.ResponseWriter, r *http.Request) {
	asked := r.PathValue("model")
	for _, name := range p.Models {
		if name == asked {
			write(w, http.StatusOK, newModel(name))
			return
		}
	}
	refuse(w, &refusal{
		status: http.StatusNotFound, kind: "invalid_request_error", param: "model", code: "model_not_found",
		message: fmt.Sprintf("the model %q does not exist", asked),
	})
}

func newModel(name string) model { return model{ID: name, Object: "model", OwnedBy: "tollgate"} }

// refuse answers with an error in OpenAI's shape.
func refuse(w http.ResponseWriter, r *refusal) {
	detail := errorDetail{Message: r.message, Type: r.kind}
	if r.param != "" {
		detail.Param = &r.param
	}
	if r.code != "" {
		detail.Code = &r.code
	}
	write(w, r.status, errorBody{Error: detail})
}

// write answers with a JSON body.
func write(w http.ResponseWriter, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		// A model's name in Options that is no UTF-8.
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(encoded)
}
