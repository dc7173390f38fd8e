package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// faulty is a disk on which each step can be made to fail.
type faulty struct {
	osDisk
	mu        sync.Mutex
	failWrite error
	partly    int // bytes that a failing write leaves
	failTrim  error
	failMake  error
	failSyncs int // how many fsyncs of files fail next
	drop      int // per cent of what a failed fsync was for that it drops, from the front, as the kernel may
	failDir   error
	files     []*faultyFile
}

type faultyFile struct {
	file
	disk *faulty
	path string
	good int64 // how much of it is on disk
	end  int64
}

func (d *faulty) create(path string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failMake != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: d.failMake}
	}
	f, err := d.osDisk.create(path)
	if err != nil {
		return nil, err
	}
	ff := &faultyFile{file: f, disk: d, path: path}
	d.files = append(d.files, ff)
	return ff, nil
}

func (d *faulty) syncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failDir != nil {
		return d.failDir
	}
	return d.osDisk.syncDir(dir)
}

func (d *faulty) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (f *faultyFile) WriteAt(p []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.failWrite != nil {
		n, err := f.file.WriteAt(p[:min(len(p), f.disk.partly)], at)
		return n, errors.Join(err, f.disk.failWrite)
	}
	f.end = at + int64(len(p))
	return f.file.WriteAt(p, at)
}

func (f *faultyFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.failTrim != nil {
		return f.disk.failTrim
	}
	return f.file.Truncate(size)
}

func (f *faultyFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.failSyncs == 0 {
		f.good = f.end
		return f.file.Sync()
	}
	f.disk.failSyncs--
	zeros := make([]byte, (f.end-f.good)*int64(f.disk.drop)/100)
	if _, err := f.file.WriteAt(zeros, f.good); err != nil {
		return err
	}
	return syscall.EIO
}

// A write that fails leaves the journal as it was, also when it left bytes behind, and when these cannot be cut off.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		err    error
		partly int
		trim   error
	}{
		{"disk full", syscall.ENOSPC, 0, nil},
		{"disk full half way", syscall.ENOSPC, 700, nil},
		{"input/output error", syscall.EIO, 99, nil},
		{"read-only", syscall.EROFS, 0, syscall.EROFS},
		{"not cut off", syscall.ENOSPC, 1 << 20, syscall.EIO},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, disk := t.TempDir(), &faulty{}
			j := open(t, dir, func(o *Options) { o.disk = disk })
			appendAll(t, j, samples(1, 3)...)
			before := j.Stats()
			disk.set(func() { disk.failWrite, disk.partly, disk.failTrim = c.err, c.partly, c.trim })
			for range 3 {
				err := j.Append(samples(100, 120))
				if !errors.Is(err, c.err) && !errors.Is(err, c.trim) || err == nil {
					t.Fatalf("append: %v", err)
				}
			}
			before.AppendErrors = 3
			same(t, "stats", j.Stats(), before)
			got, end := readBack(t, j, Mark{}, 10)
			same(t, "while it fails", got, samples(1, 3))
			same(t, "mark", end == j.Mark(), true)

			disk.set(func() { disk.failWrite, disk.failTrim = nil, nil })
			appendAll(t, j, samples(4, 4)...) // shorter than what the failed ones left
			appendAll(t, j, samples(5, 30)...)
			got, _ = readBack(t, j, Mark{}, 10)
			same(t, "afterwards", got, samples(1, 30))
			die(t, j)
			j = open(t, dir)
			same(t, "replayed", readLeftover(t, j.Leftovers()[0], 10), samples(1, 30))
			same(t, "lost", j.Stats().DamagedBytes+j.Stats().TornBytes, int64(0))
		})
	}
}

// What a failed fsync was for is written again: after a loss of power it is there, in order, although the kernel had
// dropped it, and marks still mean the same place.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	for _, drop := range []int{0, 50, 100} { // of 50, what is left must not be replayed before what is not
		dir, disk := t.TempDir(), &faulty{drop: drop}
		j := open(t, dir, silently, func(o *Options) { o.disk, o.Name = disk, "w" })
		marks := make([]Mark, 41)
		add := func(from, to int64) {
			for i := from; i <= to; i++ {
				marks[i] = j.Mark()
				appendAll(t, j, sample(i))
			}
		}
		add(1, 10)
		if err := j.Sync(); err != nil {
			t.Fatal(err)
		}
		for _, from := range []int64{11, 21} { // two files in turn
			add(from, from+9)
			disk.set(func() { disk.failSyncs = 1 })
			if err := j.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		add(31, 40)
		if err := j.Sync(); err != nil {
			t.Fatal(err)
		}
		same(t, "files", journals(t, dir), []string{"w.2.journal", "w.3.journal", "w.journal"})
		stats := j.Stats()
		same(t, "counted", []int64{stats.SyncErrors, stats.Rewritten, stats.Entries, stats.DamagedBytes}, []int64{2, 20, 40, 0})
		for i := int64(1); i <= 40; i++ {
			got, next := readBack(t, j, marks[i], 7)
			same(t, "from a mark", got, samples(i, 40))
			same(t, "the end", next == j.Mark(), true)
		}
		die(t, j)

		j = open(t, dir, silently)
		var got []Entry
		for _, l := range j.Leftovers() {
			got = append(got, readLeftover(t, l, 7)...)
		}
		same(t, "replayed", got, samples(1, 40))
		same(t, "lost", j.Stats().DamagedBytes+j.Stats().TornBytes, int64(0))
	}
}

// While nothing can be written, Append says so and takes nothing; once it can, nothing is missing.
func TestFailedSyncCannotBeMadeGood(t *testing.T) {
	t.Parallel()
	dir, disk := t.TempDir(), &faulty{drop: 100}
	j := open(t, dir, silently, func(o *Options) { o.disk = disk })
	appendAll(t, j, samples(1, 5)...)
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	appendAll(t, j, samples(6, 10)...)
	disk.set(func() { disk.failSyncs, disk.failMake = 1, syscall.EROFS })
	if err := j.Sync(); !errors.Is(err, syscall.EIO) || !errors.Is(err, syscall.EROFS) {
		t.Fatalf("sync: %v", err)
	}
	disk.set(func() { disk.failMake, disk.failSyncs = nil, 2 }) // the new file's
	for _, err := range []error{j.Append(samples(11, 11)), j.Sync()} {
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("while it fails: %v", err)
		}
	}
	same(t, "files", len(journals(t, dir)), 1)
	got, mark := samples(0, -1), Mark{}
	for {
		list, next, err := j.ReadFrom(mark, 3)
		if err != nil {
			same(t, "what cannot be read is no damage", errors.Is(err, errUntrusted), true)
			break
		}
		got, mark = append(got, list...), next
	}
	same(t, "trusted", got, samples(1, 5))
	appendAll(t, j, sample(11)) // makes good for it first
	got, _ = readBack(t, j, mark, 3)
	same(t, "from there on", got, samples(6, 11))
	stats := j.Stats()
	same(t, "counted", []int64{stats.SyncErrors, stats.Rewritten, stats.Entries, stats.AppendErrors, stats.DamagedBytes},
		[]int64{4, 5, 11, 1, 0})
	if err := j.Reset(); err != nil {
		t.Fatal(err)
	}
	same(t, "held", j.Stats().Held, int64(headerSize))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "files", journals(t, dir), []string(nil))
}

// A Reset answers for what a failed fsync left open.
func TestResetAfterFailedSync(t *testing.T) {
	t.Parallel()
	disk := &faulty{}
	j := open(t, t.TempDir(), silently, func(o *Options) { o.disk = disk })
	appendAll(t, j, samples(1, 5)...)
	disk.set(func() { disk.failSyncs = 2 })
	if err := j.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	disk.set(func() { disk.failTrim = syscall.EIO })
	if err := j.Reset(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	disk.set(func() { disk.failTrim = nil })
	if err := j.Reset(); err != nil {
		t.Fatal(err)
	}
	appendAll(t, j, samples(6, 7)...)
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	got, _ := readBack(t, j, Mark{}, 3)
	same(t, "entries", got, samples(6, 7))
	same(t, "rewritten", j.Stats().Rewritten, int64(0))
}

// A disk that fails again and again does not take all file descriptors.
func TestFailedSyncsAreBounded(t *testing.T) {
	t.Parallel()
	disk := &faulty{}
	j := open(t, t.TempDir(), silently, func(o *Options) { o.disk = disk })
	var err error
	for i := int64(1); err == nil && i <= maxFiles; i++ {
		appendAll(t, j, sample(i))
		disk.set(func() { disk.failSyncs = 1 })
		err = j.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, j, sample(maxFiles+1))
	disk.set(func() { disk.failSyncs = 1 })
	if err := j.Sync(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "64 files already") {
		t.Fatalf("one more: %v", err)
	}
	got, _ := readBack(t, j, Mark{}, 10)
	same(t, "entries", got, samples(1, maxFiles+1))
}

// Append syncs by itself before the entries that wait for it become many.
func TestUnsyncedIsBounded(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), quickly)
	e := Entry{At: clock(), Args: []string{strings.Repeat("x", 1<<20)}}
	for range 40 {
		appendAll(t, j, e)
		if n := len(j.unsynced); n > maxUnsynced>>20 {
			t.Fatalf("%d entries of 1 MiB wait", n)
		}
	}
}

func TestFolders(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	plain := filepath.Join(base, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir string
		disk      disk
		want      error
	}{
		{"missing parent", filepath.Join(base, "no", "journal"), nil, os.ErrNotExist},
		{"a file", plain, nil, syscall.ENOTDIR},
		{"below a file", filepath.Join(plain, "journal"), nil, syscall.ENOTDIR},
		{"read-only", base, &faulty{failMake: syscall.EROFS}, syscall.EROFS},
		{"no permission", base, &faulty{failMake: syscall.EACCES}, os.ErrPermission},
		{"disk full", base, &faulty{failWrite: syscall.ENOSPC}, syscall.ENOSPC},
		{"no fsync", base, &faulty{failSyncs: 1}, syscall.EIO},
		{"no fsync of the folder", base, &faulty{failDir: syscall.EIO}, syscall.EIO},
	} {
		j, err := Open(Options{Dir: c.dir, disk: c.disk})
		if err == nil {
			_ = j.Close()
		}
		if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "journal folder "+c.dir+": ") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := Open(Options{}); err == nil {
		t.Error("no folder was taken")
	}
	same(t, "what is left lying there", journals(t, base), []string{"plain"})
}

// What a failed write left behind does not come back as entries when shorter ones are written over it.
func TestFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, trim := range []error{nil, syscall.EIO} {
		dir, disk := t.TempDir(), &faulty{}
		j := open(t, dir, func(o *Options) { o.disk = disk })
		alike := func(seq int64) Entry { return Entry{At: clock().UTC(), Seq: seq} } // all of one length
		appendAll(t, j, alike(1))
		disk.set(func() { disk.failWrite, disk.partly, disk.failTrim = syscall.ENOSPC, 1<<20, trim })
		if err := j.Append([]Entry{alike(2), alike(3)}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		disk.set(func() { disk.failWrite, disk.failTrim = nil, nil })
		appendAll(t, j, alike(4))
		die(t, j)
		j = open(t, dir)
		same(t, "entries", readLeftover(t, j.Leftovers()[0], 10), []Entry{alike(1), alike(4)})
	}
}

// slow is a disk whose fsyncs say that they are there and wait until they are let go, or all are free.
type slow struct {
	osDisk
	waiting, gate, free chan struct{}
}

type slowFile struct {
	file
	disk *slow
}

func (d *slow) create(path string) (file, error) {
	f, err := d.osDisk.create(path)
	if err != nil {
		return nil, err
	}
	return &slowFile{f, d}, nil
}

func (f *slowFile) Sync() error {
	select {
	case f.disk.waiting <- struct{}{}:
		select {
		case <-f.disk.gate:
		case <-f.disk.free:
		}
	case <-f.disk.free:
	}
	return f.file.Sync()
}

// Append and Reset do not wait for an fsync. One that began before a Reset says nothing of what came after it.
func TestSlowSync(t *testing.T) {
	t.Parallel()
	disk := &slow{free: make(chan struct{})}
	close(disk.free) // Open's own
	j := open(t, t.TempDir(), func(o *Options) { o.disk = disk })
	disk.waiting, disk.gate, disk.free = make(chan struct{}), make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(disk.free) })
	t.Cleanup(release)
	appendAll(t, j, samples(1, 9)...)
	done := make(chan error)
	go func() { done <- j.Sync() }()
	<-disk.waiting
	appendAll(t, j, samples(10, 11)...)
	got, _ := readBack(t, j, Mark{}, 20)
	same(t, "meanwhile", got, samples(1, 11))
	if err := j.Reset(); err != nil {
		t.Fatal(err)
	}
	appendAll(t, j, samples(12, 13)...)
	disk.gate <- struct{}{}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	same(t, "entries that wait for the next", len(j.unsynced), 2)
	go func() { done <- j.Sync() }()
	<-disk.waiting
	appendAll(t, j, sample(14))
	disk.gate <- struct{}{}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	same(t, "entries that came during it", len(j.unsynced), 1)
	release()
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	same(t, "entries that wait in the end", len(j.unsynced), 0)
}

// A file that was not complete when the process died is removed, and what it was to replace counts to its end. A name
// that is taken is not used for another.
func TestUnfinishedRewrite(t *testing.T) {
	t.Parallel()
	dir, disk := t.TempDir(), &faulty{}
	j := open(t, dir, silently, func(o *Options) { o.disk, o.Name = disk, "w" })
	appendAll(t, j, samples(1, 5)...)
	if err := os.WriteFile(filepath.Join(dir, "w.rewrite"), build(samples(1, 2)).data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "w.2.journal"), build(samples(8, 9)).data, 0o600); err != nil {
		t.Fatal(err)
	}
	disk.set(func() { disk.failSyncs, disk.failMake = 1, syscall.EIO })
	if err := j.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "w.rewrite"), build(samples(1, 2)).data, 0o600); err != nil {
		t.Fatal(err)
	}
	die(t, j)
	j = open(t, dir)
	same(t, "files", slices.DeleteFunc(journals(t, dir), func(s string) bool { return !strings.HasPrefix(s, "w.") }),
		[]string{"w.2.journal", "w.journal"})
	same(t, "entries", collect(t, j), append(samples(8, 9), samples(1, 5)...)) // by the header's time
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "w.journal")); err != nil {
		t.Fatal(err)
	}

	disk.set(func() { disk.failMake = nil })
	j = open(t, dir, silently, func(o *Options) { o.disk, o.Name = disk, "w" })
	appendAll(t, j, samples(1, 5)...)
	disk.set(func() { disk.failSyncs = 1 })
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	same(t, "files", journals(t, dir), []string{"w.2.journal", "w.3.journal", "w.journal"})
	same(t, "the file that was there", collect(t, j), samples(8, 9))
}
