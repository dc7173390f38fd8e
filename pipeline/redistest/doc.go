// Package redistest gives tests a real Redis and a proxy in front of it.
//
// [Start] runs a redis-server of the test's own, which the test may kill, restart, pause and resume. [NewProxy] puts a
// counting proxy of package tripcount between a client and a Redis.
//
// The package owns no Redis keys and knows nothing of LLM traffic. It may import go-redis, tripcount and the standard
// library only.
package redistest
