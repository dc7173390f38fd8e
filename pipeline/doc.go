// Package pipeline is a round-trip discipline for Redis.
//
// Everything one request asks of Redis before it may go on is declared on a [Batch]; declaring does no I/O, and the
// first Get on any of its handles sends all of it as one pipeline, at most once, within the backend's deadline.
// Everything that requests write afterwards is declared on a [Writes]; when it is closed, a [Deferred] queue sends it,
// with whatever else is waiting, as one pipeline that nobody waits for, and repeats it until Redis has answered.
//
// # Concurrent callers share trips
//
// A lone caller sends its batch on its own goroutine. Callers that arrive while a few trips are under way gather, and the
// next sender, itself one of them, takes them all along. The deadline bounds the wait for the server, not for a turn. What
// a batch of three commands costs on two cores shared with the server (BenchmarkBatch, one run):
//
//	callers      1     16    128    512
//	us a batch  118     24     11     11
//
// # Sent at most once
//
// A request batch is never resent after it may have been executed: go-redis' own retries are off. A second try is made
// only where the reply proves that nothing ran (NOSCRIPT and its like, see [NotExecuted]) or where the connection
// failed before a byte was written.
//
// # Applied exactly once
//
// A deferred write must be safe to repeat, because a lost reply means that it is sent again. Commands that set a value
// are. For everything else there is [Writes.Once]: a script that gets the process' writer id and a sequence number and
// does nothing when that number was applied before. All writes of a process leave in one order.
//
// # Each reply is judged alone
//
// A failing command reaches only its owner. The error of the pipeline as a whole is never looked at: go-redis returns
// the first one, and a harmless nil reply hides a NOSCRIPT or a WRONGTYPE behind it.
//
// The package knows nothing of what the commands are for. It imports go-redis, miniredis for the in-process store,
// client_golang for its metrics and OpenTelemetry's API for its spans.
package pipeline
