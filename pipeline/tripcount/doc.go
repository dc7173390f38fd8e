// Package tripcount counts what crosses the wire to a Redis.
//
// A [Proxy] stands between a client and any Redis: it parses both directions, counts round trips by the alternation of
// requests and replies, and injects the faults a network has (a reply lost after execution, delay, a reset, a black
// hole). It knows nothing of the client's own idea of a pipeline, which is the point.
//
// The package imports the standard library only.
package tripcount
