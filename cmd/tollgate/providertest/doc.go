// Package providertest is the upstream of end-to-end tests.
//
// [Provider] is scripted: it logs every hit with its raw bytes and answers as the test says, down to where the bytes are
// split, how long each waits, and how the connection breaks. [Recorder] stands before a real model server and keeps what
// passed. Both listen on 127.0.0.1 until their test ends and are safe for concurrent use.
//
// The package imports nothing of tollgate: what a test expects must not come from the code under test.
package providertest
