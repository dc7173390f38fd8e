// Package price knows what tokens cost.
//
// It owns the built-in price table (made from public price facts, embedded compactly), the rows that the configuration
// adds, and the arithmetic: integers in nano-dollars per million tokens, multiplied in 128 bits, rounded half up once a
// request. It imports config (rows) and usage (counts), does no I/O and holds no state.
//
// The facts are those of LiteLLM's price map, which is MIT-licensed (https://github.com/BerriAI/litellm); gen.go says
// what is left out of it and why.
package price
