// Package pipeline is a round-trip discipline for Redis.
//
// Everything one request asks of Redis before it may go on is declared on a [Batch]; declaring does no I/O, and the
// first Get on any of its handles sends all of it at once, at most once, within the backend's deadline. Everything that
// requests write afterwards is declared on a [Writes]; when it is closed, a [Deferred] queue sends it, with whatever else
// is waiting, as one pipeline that nobody waits for, and repeats it until Redis has answered.
//
// # One server, a cluster, several backends
//
// A [Backend] is a server, the master that sentinels name, a Redis Cluster, or an in-process store. On a cluster commands
// are grouped by the server that has their slot, and the servers are asked at the same time: a batch waits once. What a
// server refuses unexecuted because a slot has moved, or is on its way (MOVED, ASK, TRYAGAIN), goes on alone, within the
// deadline. [Batch.On] declares commands on another backend; they leave at the same time too.
//
// # Concurrent callers share trips
//
// A lone caller sends its batch on its own goroutine. Callers that arrive while a few trips are under way gather (four to a
// server that is near, sixteen to one whose trips spend their time on the way), and leave together with the next one. The
// deadline bounds the wait for the server, not for a turn. What a batch of three commands
// costs, in microseconds, when each caller has a pipeline and a connection of its own (alone), through go-redis'
// AutoPipeline in full duplex (auto) and here (shared); go test -bench Sharing, one run on two cores that client, server
// and the proxy which adds the round-trip time share:
//
//	round trip   callers     1     16    128    512
//	none         alone      56     22     17     25
//	             auto       80     14      6      6
//	             shared     69     18      5      5
//	0.5 ms       alone    1255    102     72     70
//	             auto     1285    101     25     12
//	             shared   1320    116     28     13
//	2 ms         alone    2462    212     66     77
//	             auto     2530    179     31     17
//	             shared   2446    201     44     16
//
// A lone caller's figures differ by as much from run to run. AutoPipeline is not used although it is quick: it
// sends again what may have been executed.
//
// # Sent at most once
//
// A request batch is never resent after it may have been executed: go-redis' own retries are off. A second try is made
// only where the reply proves that nothing ran (NOSCRIPT and its like, see [NotExecuted]) or where the connection
// failed before a byte was written. A caller leaves at the deadline; what arrives later reaches whoever asked for it with
// [Handle.Late], and nobody else.
//
// # Applied exactly once
//
// A deferred write must be safe to repeat, because a lost reply means that it is sent again. Commands that set a value
// are. For everything else there is [Writes.Once], with a script made by [NewOnce]: it gets a number, and does nothing when
// that was applied before. A write names the one before it in its flush and does not run when that has not, so that none
// overtakes another although a server may refuse some commands of a pipeline and run the next. Numbers therefore never
// change, and a write can be kept on disk, in a [journal], and be replayed by another process.
//
// # Each reply is judged alone
//
// A failing command reaches only its owner. The error of the pipeline as a whole is never looked at: go-redis returns
// the first one, and a harmless nil reply hides a NOSCRIPT or a WRONGTYPE behind it.
//
// The package knows nothing of what the commands are for. It imports go-redis, miniredis for the in-process store,
// client_golang for its metrics, and the API of OpenTelemetry for its spans.
//
// [journal]: https://pkg.go.dev/github.com/tollgate-proxy/tollgate/pipeline/journal
package pipeline
