package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// DefaultMax is the bound of the journals in a folder unless Options say otherwise.
const DefaultMax = 1 << 30

// maxUnsynced is how many bytes may wait for a Sync, and with them their entries in memory, before Append calls it.
const maxUnsynced = 16 << 20

// maxBuffer is how much of the buffer that Append encodes into is kept for the next one.
const maxBuffer = 1 << 20

// ErrFull says that the folder's journals have reached their bound. Nothing was written.
var ErrFull = errors.New("the journal is full")

// Options tell where a journal is and how large it may grow.
type Options struct {
	// Dir is the folder. It is made, mode 0700, if only it is missing.
	Dir string
	// Name names the file, `<Name>.journal`: the writer id, say. Letters, digits, '.', '_' and '-'. Empty, or when the
	// name is taken, it is random.
	Name string
	// Max bounds the bytes of the journals that this process holds: its own, and those of dead processes until they are
	// removed. Zero means DefaultMax.
	Max int64
	// Scripts are those of this program. They stand in for a script whose record in a file is damaged.
	Scripts []Script
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	Log *slog.Logger

	disk disk // nil but in tests
}

// Journal is the journal of this process, and those of dead ones that it found. It is safe for concurrent use; Append
// does not wait for a Sync that is under way.
type Journal struct {
	opt       Options
	name      string
	born      int64
	count     counters
	leftovers []*Leftover

	syncing sync.Mutex // one fsync at a time; before reading
	reading sync.Mutex // one ReadFrom at a time, and none while files go; before mu
	window  []byte     // of ReadFrom

	mu       sync.Mutex
	sealed   []*segment // files whose fsync failed: good up to their end
	active   *segment
	synced   int64     // how much of the active file is on disk for certain
	unsynced []pending // entries behind that
	buf      []byte
	epoch    int64  // how many Resets there were, from 1
	ragged   bool   // a failed write left something behind the end
	broken   error  // a failed fsync that was not made good for
	stuck    []file // could not be removed
	closed   bool
}

// segment is one file of the journal.
type segment struct {
	file  file
	path  string
	head  header
	end   int64 // of what is good
	size  int64 // bytes on disk
	known []reference
	moved []moved // entries behind the end, and where they stand in the next file; ascending
	next  uint32  // generation of that file
}

// pending is an entry that waits for its fsync.
type pending struct {
	entry Entry
	at    int64 // where its record begins
}

type moved struct{ from, to int64 }

// reference is a script that a file holds.
type reference struct {
	script Script
	digest digest
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// Open adopts the journals of dead processes in the folder and starts one of its own. Errors name the folder. Call
// Close at the end.
func Open(opt Options) (*Journal, error) {
	if opt.Max <= 0 {
		opt.Max = DefaultMax
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.disk == nil {
		opt.disk = osDisk{}
	}
	if opt.Name != "" && !validName.MatchString(opt.Name) {
		return nil, fmt.Errorf("journal: %q cannot name a file", opt.Name)
	}
	j := &Journal{opt: opt, born: opt.Now().UnixMilli(), epoch: 1}
	if err := j.open(); err != nil {
		for _, f := range j.stuck {
			f.Close()
		}
		j.closeLeftovers()
		return nil, fmt.Errorf("journal folder %s: %w", opt.Dir, err)
	}
	return j, nil
}

func (j *Journal) open() error {
	if j.opt.Dir == "" {
		return errors.New("no name given")
	}
	if err := makeFolder(j.opt.disk, j.opt.Dir); err != nil {
		return err
	}
	if err := j.adopt(); err != nil {
		return err
	}
	first, err := j.createFirst()
	if err != nil {
		return err
	}
	if err := errors.Join(first.file.Sync(), j.opt.disk.syncDir(j.opt.Dir)); err != nil {
		j.discard(first)
		return err
	}
	j.active, j.synced = first, headerSize
	j.count.held.Add(headerSize)
	return nil
}

// createFirst makes the journal's first file under a name that is free.
func (j *Journal) createFirst() (*segment, error) {
	j.name = j.opt.Name
	if j.name == "" {
		j.name = rand.Text()
	}
	const attempts = 100 // each fails only if another process scans the folder at this very moment
	for i := 1; ; i++ {
		s, err := j.create(j.path(suffix), 1, origin{})
		if err == nil || i == attempts || !errors.Is(err, os.ErrExist) && !errors.Is(err, errTaken) {
			return s, err
		}
		j.name = rand.Text()
	}
}

func (j *Journal) path(behind string) string { return filepath.Join(j.opt.Dir, j.name+behind) }

// create makes a file with its header. It is not synced.
func (j *Journal) create(path string, generation uint32, before origin) (*segment, error) {
	f, err := j.opt.disk.create(path)
	if err != nil {
		return nil, err
	}
	s := &segment{file: f, path: path, head: newHeader(generation, j.born, before), end: headerSize, size: headerSize}
	if _, err := f.WriteAt(s.head.encode(), 0); err != nil {
		j.discard(s)
		return nil, err
	}
	return s, nil
}

// discard takes back a file that was just made. One that cannot be removed stays locked: whoever adopted it would replay
// entries out of the order in which this process sends them.
func (j *Journal) discard(s *segment) {
	if err := os.Remove(s.path); err != nil {
		j.stuck = append(j.stuck, s.file)
		return
	}
	s.file.Close()
}

// Size is the bytes of what this process has appended since the last Reset; 0 means that there is nothing.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size()
}

func (j *Journal) size() int64 {
	n := j.active.end - headerSize
	for _, s := range j.sealed {
		n += s.end - headerSize
	}
	return n
}

// Leftovers are the journals of dead processes that Open found, oldest first; the files of one process in their order.
// Other processes cannot adopt them while this one lives.
func (j *Journal) Leftovers() []*Leftover { return append([]*Leftover(nil), j.leftovers...) }

// Close ends the journal. One that is empty is removed; else it is synced and stays for the next start, as do leftovers
// that were not removed. Close is idempotent; nothing else may run.
func (j *Journal) Close() error {
	var err error
	if j.Size() > 0 {
		err = j.Sync()
	}
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.reading.Lock()
	defer j.reading.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	files := append(j.sealed, j.active)
	if j.size() == 0 {
		err = errors.Join(err, j.remove(files))
	}
	for _, s := range files {
		err = errors.Join(err, s.file.Close())
	}
	for _, f := range j.stuck {
		f.Close()
	}
	j.closeLeftovers()
	j.unsynced, j.buf = nil, nil
	if err != nil {
		return fmt.Errorf("journal: close: %w", err)
	}
	return nil
}

// remove takes files out of the folder, still locked.
func (j *Journal) remove(files []*segment) error {
	var err error
	for _, s := range files {
		err = errors.Join(err, os.Remove(s.path))
		j.count.held.Add(-s.size)
	}
	return errors.Join(err, j.opt.disk.syncDir(j.opt.Dir))
}
