// Package envoy is Envoy's side of tollgate: what Envoy is told, and the Envoy that `tollgate run` starts.
//
// It owns three things. The resources (Listener, Routes, Clusters, Processor) render a configuration file as Envoy's
// own: one listener, one route that follows a header the filter sets, one cluster per deployment, and the ext_proc
// filter with every default that does not fit LLM traffic changed. Bootstrap prints them as one file, or as the few
// lines that make an Envoy ask Server, the xDS server, for them. Local runs an Envoy as a child process that shares
// tollgate's fate.
//
// No provider credential is in anything this package makes: the filter puts it on each request. A request that the
// filter has not routed has nowhere to go, whatever headers the client sent.
//
// The package imports governance/config and Envoy's protobufs, nothing else of tollgate.
package envoy
