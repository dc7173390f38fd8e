package redistest

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// guarded starts a shell that kills the process when this one is gone. A test binary that dies (a timeout's panic, a
// kill -9) runs no cleanup and would leave its servers behind. Closing the result ends the guard; do so only after the
// process was waited for, when the kill finds nothing.
func guarded(pid int) (io.Closer, error) {
	guard := exec.Command("/bin/sh", "-c", `read -r done || kill -9 "$1" 2>/dev/null`, "guard", strconv.Itoa(pid))
	in, err := guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := guard.Start(); err != nil {
		return nil, err
	}
	return &guardian{cmd: guard, in: in}, nil
}

// guardian is the shell started by guarded.
type guardian struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// Close tells the shell that there is nothing left to kill, and waits for it.
func (g *guardian) Close() error {
	_, err := io.WriteString(g.in, "done\n")
	return errors.Join(err, g.in.Close(), g.cmd.Wait())
}

// file writes a file into the server's folder and returns its path.
func (s *Server) file(name, content string) string {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.t.Errorf("write a server's configuration: %v", err) // it may not be the test's goroutine
	}
	return path
}

// freePorts asks the kernel for ports that nobody listens on. Somebody may take one before Redis does; boot tries again.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		// Held until all are found: they differ.
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
