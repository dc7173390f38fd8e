package journal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// isolated gives a process mounts of its own, which end with it: as root, or as root of its own user namespace.
func isolated(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
}

// mountRole makes a folder a file system of 256 KiB, for this process only.
func mountRole(dir string) error {
	return errors.Join(
		syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""),
		syscall.Mount("none", dir, "tmpfs", 0, "size=256k"),
	)
}

// fullRole fills it, and opens a folder on it once it is read-only.
func fullRole(dir string) error {
	if err := mountRole(dir); err != nil {
		return err
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600); err != nil {
		return err
	}
	if err := fillUp(dir, syscall.ENOSPC, func() error { return os.Remove(ballast) }); err != nil {
		return err
	}
	j, err := openRole(dir)
	if err != nil {
		return err
	}
	n := 0
	for _, l := range j.Leftovers() {
		for err = nil; err == nil; {
			var list []Entry
			list, err = l.Next(50)
			n += len(list)
		}
	}
	if err := errors.Join(say("replayed", int64(n)), j.Close()); err != nil {
		return err
	}
	if err := syscall.Mount("none", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	if j, err = openRole(dir); !errors.Is(err, syscall.EROFS) {
		return errors.Join(fmt.Errorf("read-only: %w", err), j.Close())
	}
	return nil
}

// A disk that is really full, and then really read-only. Where no process may mount one, TestFileSizeLimit and
// TestFailedWrite have to do.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	probe := exec.Command(binary)
	probe.Env = append(os.Environ(), roleVariable+"=mount", dirVariable+"="+dir)
	isolated(probe)
	if err := probe.Run(); err != nil {
		t.Log("no mounts here:", err)
		return
	}
	said := checkFilledUp(t, start(t, "full", dir, isolated))
	same(t, "replayed", latest(t, said, "replayed"), latest(t, said, "appended"))
}
