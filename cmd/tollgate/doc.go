// Command tollgate governs LLM traffic inside Envoy.
//
// `tollgate run` starts everything on one machine: the filter, an Envoy, a store and, without a configuration, a demo
// provider. `tollgate serve` runs the filter alone for an Envoy run by others. `tollgate --help` lists the rest.
package main
