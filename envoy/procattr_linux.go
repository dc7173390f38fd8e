package envoy

import "syscall"

// processAttributes put Envoy in a process group of its own, so that a Ctrl-C at the terminal reaches only tollgate,
// which drains it; and make the kernel kill it when tollgate is gone, also by kill -9. The kernel means the thread that
// forked, so that thread must live as long as tollgate: see process.run.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
