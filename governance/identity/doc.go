// Package identity answers who is calling: it finds the credential of a request and the key that it belongs to.
//
// It owns where credentials are looked for (governance.md "Credentials"), the form of the keys tollgate makes, and the
// directory of keys that the configuration file names. A secret leaves FindCredential only as its SHA-256: keys are
// stored, compared and looked up by that hash alone, so that neither timing nor a log can tell a secret.
//
// It imports config and refusal, does no I/O and takes the time as a value. A Directory is immutable and safe for
// concurrent use.
package identity
