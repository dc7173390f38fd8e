// Package refusal is the one shape in which tollgate says no.
//
// Every decision package returns a *Refusal that holds facts: the reason, the scope, the limit, what was used and when it
// resets. Describe puts them into words and Render into status, headers and body of the caller's dialect, so that
// official clients raise the exception their users expect. The package owns wording, status, codes and headers of
// refusals (governance.md "Refusals") and imports only package usage, for the dialect.
//
// Everything here is a pure function over values and safe for concurrent use.
package refusal
