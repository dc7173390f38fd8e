// Package extproc is the external-processing server that Envoy talks to.
//
// One gRPC stream is one HTTP request; [Server.Process] runs it as a small state machine in one goroutine. It serves
// whatever body modes Envoy says it is set to, shows what it sees to a governance.Call, and turns what that answers into
// Envoy's messages. There is no Redis, no price and no limit in here.
//
// A stream is never ended before it has a verdict: Envoy would send the request upstream ungoverned. A panic becomes a
// refusal.
package extproc
