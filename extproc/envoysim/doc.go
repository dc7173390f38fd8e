// Package envoysim plays Envoy's part of the ext_proc protocol: one exchange from the request's headers to the answer's
// last byte, in the full-duplex mode that the rendered configuration sets.
//
// It lets round trips be counted and messages be sent in orders that a real Envoy never would, without an Envoy. What
// Envoy really does is tested with the real one. It imports only Envoy's protobufs and gRPC.
package envoysim
