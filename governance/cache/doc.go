// Package cache is the response cache without its I/O: what an answer is filed under, who may share it, what is worth
// keeping, and how one entry serves streaming and non-streaming callers.
//
// It owns the key (KeyOf), the scope (RuleFor, ScopeID), the request's controls, the stored form (Entry), the collecting
// of an answer as it passes (Collector) and the conversion between a chat completion and its stream (Completion,
// Stream). The caller fetches and stores.
//
// # What is kept
//
// Only complete, successful, non-empty answers. A chat completion is always kept as JSON, also when it came as a stream:
// the stream is assembled, and a streaming caller gets it back by conversion, never as the bytes that came. Other
// endpoints' answers are kept as they came and serve only callers who ask for that framing; for the others they are a
// miss. What cannot be converted exactly is not kept: hit rate is given up, never exactness.
//
// # Bounds
//
// Keys hash in time and memory linear in the body. A Collector holds at most the size given to it and drops everything
// once the answer is larger or turns out not to be worth keeping.
//
// The package imports config and usage. All functions are pure; a Collector belongs to one goroutine.
package cache
