package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// suffix is that of journals; damagedSuffix is put behind it on files that are kept aside. A file that continues another
// has rewriteSuffix until all of it is on disk.
const (
	suffix        = ".journal"
	damagedSuffix = ".damaged"
	rewriteSuffix = ".rewrite"
)

// file is what a journal asks of its file.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// disk makes files and syncs folders; tests put failures in between.
type disk interface {
	create(path string) (file, error)
	syncDir(dir string) error
}

// errTaken says that another process has locked a file, or that the name now means another file or none.
var errTaken = errors.New("the journal belongs to another process")

type osDisk struct{}

func (osDisk) create(path string) (file, error) {
	f, _, err := openLocked(path, os.O_CREATE|os.O_EXCL)
	return f, err
}

// syncDir makes what was created, renamed and removed in a folder last. File systems that cannot do it say EINVAL or
// ENOTSUP.
func (osDisk) syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// lockedFile is a file that no other process has.
type lockedFile struct{ *os.File }

// Close gives the lock back first: a child that is being forked at this moment shares it until it execs.
func (f *lockedFile) Close() error {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return f.File.Close()
}

// openLocked opens a file and locks it. Between the two another process may have locked the file, and removed it: then
// the name no longer means what is open here.
func openLocked(path string, flag int) (file, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|flag, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if err := lock(f); err != nil {
		if flag&os.O_EXCL != 0 && !errors.Is(err, errTaken) {
			_ = os.Remove(path) // a file system without locks: nothing is left lying there
		}
		f.Close()
		return nil, nil, err
	}
	var locked file = &lockedFile{f}
	opened, err := f.Stat()
	if err != nil {
		locked.Close()
		return nil, nil, err
	}
	if named, err := os.Lstat(path); err != nil || !os.SameFile(opened, named) {
		locked.Close()
		return nil, nil, errTaken
	}
	return locked, opened, nil
}

// lock takes the lock that lasts until the file is closed or the process ends, kill -9 included.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errTaken
		default:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// makeFolder makes the folder if it is missing, but not its parent: that is rather a slip in the path, or a volume that
// is not mounted.
func makeFolder(d disk, dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil // creating the first file tells whether it is a folder
	}
	if err != nil {
		return err
	}
	// A parent that may be written but not read cannot be synced.
	if err := d.syncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, os.ErrPermission) {
		return err
	}
	return nil
}
