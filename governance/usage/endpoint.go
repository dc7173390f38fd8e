package usage

import "strings"

// Endpoint is what a path stands for.
type Endpoint struct {
	Name     string  // "chat" or "models"; "" when tollgate does not serve the path with that method
	Object   string  // what follows /v1/models/, as written; "" for the list and for other endpoints
	Dialect  Dialect // how a refusal on that path must be written, known or not
	Governed bool
}

// The names of the endpoints, as configuration lists them.
const (
	Chat   = "chat"
	Models = "models"
)

// served are the governed paths. An endpoint that ends in a slash stands for every object below it.
var served = []struct {
	method, path string
	endpoint     Endpoint
}{
	{"POST", "/v1/chat/completions", Endpoint{Name: Chat, Dialect: OpenAI, Governed: true}},
	{"GET", "/v1/models", Endpoint{Name: Models, Dialect: OpenAI, Governed: true}},
	{"GET", "/v1/models/", Endpoint{Name: Models, Dialect: OpenAI, Governed: true}},
}

// dialects name who speaks on the paths below a prefix; whatever is not listed speaks OpenAI's dialect.
var dialects = []struct {
	prefix  string
	dialect Dialect
}{
	{"/v1/messages", Anthropic},
	{"/v1beta/models/", Gemini},
	{"/model/", Bedrock},
	{"/openai/deployments/", Azure},
}

// FindEndpoint looks an HTTP method and a :path up. A query is ignored and runs of slashes count as one, as Envoy's
// merge_slashes would have it; nothing is percent-decoded, so that no other spelling of a path reaches an upstream
// ungoverned: it is unknown, and refused.
func FindEndpoint(method, path string) Endpoint {
	path, _, _ = strings.Cut(path, "?")
	path = CleanPath(path)
	for _, s := range served {
		if s.method != method {
			continue
		}
		if s.path == path {
			if strings.HasSuffix(path, "/") {
				continue // an object without a name
			}
			return s.endpoint
		}
		if object, below := strings.CutPrefix(path, s.path); below && strings.HasSuffix(s.path, "/") {
			found := s.endpoint
			found.Object = object
			return found
		}
	}
	return Endpoint{Dialect: dialectOf(path)}
}

func dialectOf(path string) Dialect {
	for _, d := range dialects {
		if strings.HasPrefix(path, d.prefix) {
			return d.dialect
		}
	}
	return OpenAI
}

// CleanPath is a path, without its query, with each run of slashes made one: the form endpoints are looked up in. It
// allocates only when there is something to merge.
func CleanPath(path string) string {
	if !strings.Contains(path, "//") {
		return path
	}
	merged := make([]byte, 0, len(path))
	for i := range len(path) {
		if path[i] == '/' && len(merged) > 0 && merged[len(merged)-1] == '/' {
			continue
		}
		merged = append(merged, path[i])
	}
	return string(merged)
}
