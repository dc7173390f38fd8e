// Package usage knows the wire dialects: what a request asks for and what a response used.
//
// It owns the table of endpoints, the strict request view with its byte-exact edits, the byte-level SSE parser and the
// usage readers. Everything here is a pure function over bytes: no I/O, no clock, no money. It imports nothing of
// tollgate.
//
// OpenAI's chat dialect is governed; of the others only the paths are known, for the form of a refusal. A further one
// is a request parser beside ParseChat, and for its answers a shape and an implementation of answer beside
// chatAnswer: the scanner, the event stream parser, the estimate and the splicing serve all.
package usage
