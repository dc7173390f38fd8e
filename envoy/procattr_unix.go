//go:build unix && !linux

package envoy

import "syscall"

// processAttributes put Envoy in a process group of its own, so that a Ctrl-C at the terminal reaches only tollgate,
// which drains it. Only Linux can tie its life to tollgate's: elsewhere a kill -9 of tollgate leaves an Envoy that
// refuses every request with 503.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
