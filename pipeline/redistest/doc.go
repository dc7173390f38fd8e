// Package redistest gives tests a real Redis and a proxy that counts what crosses the wire to it.
//
// [Start] runs a redis-server of the test's own, which the test may kill, restart, pause and resume. [NewProxy] stands
// between a client and any Redis: it parses both directions, counts round trips by the alternation of requests and
// replies, and injects the faults a network has (a reply lost after execution, delay, a reset, a black hole).
//
// The package owns no Redis keys and knows nothing of LLM traffic. It may import go-redis and the standard library only.
package redistest
