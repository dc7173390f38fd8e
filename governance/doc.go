// Package governance takes one call from its headers to its settlement.
//
// A [Gate] holds the configuration made ready and the stores; a [Call] is one request. The packages below it each own
// one concern and judge their own replies; this one puts them in their fixed order: identity, access, price, limits,
// deployment, cached answer before the model call; usage, price, settlement, record and cache after it.
//
// It knows nothing of Envoy: package extproc shows it headers and bodies and carries out what it answers. It imports
// the packages below it and pipeline, and OpenTelemetry's API: with a tracer each call is a span.
package governance
