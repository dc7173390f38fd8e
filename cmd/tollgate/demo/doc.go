// Package demo is a provider that needs no account: `tollgate run` without a configuration sends its traffic here, so
// that keys, budgets, limits and the cache can be tried with any OpenAI client before a real provider is set up.
//
// It answers POST /v1/chat/completions (JSON and SSE), GET /v1/models and GET /v1/models/{model} in the OpenAI shape. No
// model runs: the text says so and repeats the last user message. Usage is counted from the text by [CountTokens].
//
// The package imports nothing of tollgate.
package demo
