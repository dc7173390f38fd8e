package usage

// Dialect is how an endpoint speaks: its request, its answer and its errors. It follows from the path alone.
type Dialect string

// The dialects.
const (
	OpenAI    Dialect = "openai"
	Azure     Dialect = "azure"
	Anthropic Dialect = "anthropic"
	Gemini    Dialect = "gemini"
	Bedrock   Dialect = "bedrock"
)

// Usage is what an upstream reported, in one normal form whatever the dialect. Every count is zero or more.
type Usage struct {
	Input         int64 // all input tokens, cached ones and cache writes included
	CacheRead     int64 // of Input, read from the provider's prompt cache
	CacheWrite    int64 // of Input, written to it with the base lifetime
	CacheWrite1h  int64 // of Input, written with a lifetime of an hour
	CacheWrite12h int64 // of Input, written with a lifetime of twelve hours
	Output        int64 // all output tokens, reasoning included
	Reasoning     int64 // of Output
}

// Total is all tokens of the request.
func (u Usage) Total() int64 { return u.Input + u.Output }
