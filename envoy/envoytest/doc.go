// Package envoytest starts a real Envoy for tests.
//
// It owns nothing but test helpers: each starts or asks an Envoy, fails the test when it cannot, and prints Envoy's log
// only when the test has failed. It imports package envoy, whose Local it runs.
package envoytest
