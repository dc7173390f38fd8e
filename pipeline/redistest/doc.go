// Package redistest gives tests real servers of every kind, and a proxy in front of each.
//
// [Start] runs a redis-server of the test's own, which the test may kill, restart, pause and resume; [Kinds] runs a test on
// Redis, Valkey 8 and Valkey 9. [StartCluster] runs a Redis Cluster whose masters fail over and whose slots can be held half
// moved, [StartSentinel] a master that Sentinels watch, [StartReplicated] a master and a replica behind one address,
// [StartTLS] a server that speaks TLS; [Users] are the ACL users of any. [NewProxy] puts a counting proxy of package
// tripcount between a client and a server.
//
// The package owns no Redis keys and knows nothing of LLM traffic. It may import go-redis, tripcount and the standard
// library only.
package redistest
