// Package writes measures how long it takes to write one value for each of many users.
//
// It writes the same values in three ways through a proxy that makes every round trip as long as it is in a network: one
// by one, in one pipeline, and through the deferred batch by which tollgate writes. It counts the round trips on the wire
// and looks afterwards whether every value is there, once. `tollgate bench writes` prints the times.
package writes
