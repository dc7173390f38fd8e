// Package identity answers who is calling: it finds the credential of a request and the key that it belongs to, with the
// rows that govern it.
//
// It owns where credentials are looked for (governance.md "Credentials"), the form of the keys tollgate makes, the
// directory of keys that the configuration file names, and the rows that live in Redis. A secret leaves FindCredential
// only as its SHA-256: keys are stored, compared and looked up by that hash alone, so that neither timing nor a log can
// tell a secret.
//
// # Rows
//
// An entry of the file has no revision and is never compared: each replica's file is its truth, and it stands in front
// of what Redis has under the same secret or id. A [Row] has a revision. Its copy in Redis is replaced only by a higher
// one, a deletion leaves a tombstone, and three things carry an edit ([Publisher]): the copy, the revision beside the
// row's counters, which makes admissions from an older row answer 'stale', and a message to every replica.
//
// A [Memory] keeps what was read for 60 s. What is stale is still used: the request that uses it reads it again on its
// own pipeline ([Memory.Refresh]) and decides once more if it differs. While messages do not arrive all is stale.
//
// The package imports config, limit, refusal and pipeline, and takes the time as a value where it decides. A Directory
// and a Row are immutable and safe for concurrent use.
package identity
