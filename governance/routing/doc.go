// Package routing decides which model a request means, whether the caller may use it, and which deployments may serve it.
//
// It owns aliases, model access, endpoint access, the choice between exact and wildcard entries, and the order in which
// deployments are tried before live figures (use, latency, cooldown) are known. Nothing is translated: a deployment is a
// candidate only when its dialect speaks the path that was called.
//
// # Access
//
// Org, team and key each may list models; all lists that are there must allow the name. In a list, an entry is "*", a
// name, a wildcard ("openai/*") or an access group, and "!" before any of these denies. A denial beats every grant of the
// same list and ignores letter case, as some upstreams do. A list of nothing but denials allows all the rest.
//
// # Unknown models
//
// Access is checked before existence. A caller whose lists do not grant a name gets the same 403 whether the model
// exists or not, so that names made for other tenants cannot be found by guessing; a caller who may use the name gets
// 404 when nothing serves it.
//
// The package imports config, refusal and usage, does no I/O, and takes randomness as a function. A Table is immutable
// and safe for concurrent use.
package routing
