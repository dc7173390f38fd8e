// Package limit reserves and settles budgets, rates and slots in Redis.
//
// It owns the three scripts by which money is neither lost nor doubled, the layout of the keys they touch, and the
// calendar of budget periods:
//
//   - admit.lua compares every limit of every scope of a request, chooses the deployment, and only then adds: all or
//     nothing, in one call on the request's own pipeline;
//   - settle.lua exchanges a reservation for the real use, exactly once, on the deferred pipeline;
//   - renew.lua keeps the leases of requests that run long.
//
// On a Redis Cluster each of these is one script for what has one home, all sent at the same time: see [Options] and
// [Admission.Get]. A scope made from a row of the identities carries the row's revision, and an admission by an older
// one than the last edit's is refused as stale: see [RevisionKey].
//
// Amounts are nano-dollars, tokens or requests in int64; they cross Lua as decimal strings and stay below 2^53. The
// package imports pipeline, config, usage and refusal; it knows no HTTP.
package limit
