package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Lifetime is how old an entry may be and still be replayed. Redis keeps the last number of a writer, which makes
// replaying safe, for 35 days after the last write it applied of that writer. An entry that was applied, and whose
// reply was lost, was journalled a little later than that, by another clock: hence an hour less.
const Lifetime = 35*24*time.Hour - time.Hour

// Leftover is a file of a dead process, locked by this one. It belongs to one goroutine.
type Leftover struct {
	journal *Journal
	file    file
	path    string
	size    int64
	end     int64 // of what counts
	born    int64
	head    header
	intact  bool // the header is
	reader  *reader
	read    int64
	expired int64
	ended   bool // read to its end, and reported
	removed bool
}

// errNewer marks a file that a newer version of the program wrote.
var errNewer = errors.New("written by a newer version")

// adopt locks the journals of dead processes. One that cannot be read now is left for a later start: it is no reason to
// do without a journal.
func (j *Journal) adopt() error {
	names, err := os.ReadDir(j.opt.Dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		path := filepath.Join(j.opt.Dir, n.Name())
		unfinished := strings.HasSuffix(path, rewriteSuffix)
		if !n.Type().IsRegular() || !unfinished && !strings.HasSuffix(path, suffix) {
			continue
		}
		l, err := j.adoptFile(path, unfinished)
		switch {
		case errors.Is(err, errTaken), errors.Is(err, os.ErrNotExist):
		case err != nil:
			j.opt.Log.Error("journal of an earlier process cannot be read", "file", path, "error", err)
		case l != nil:
			j.leftovers = append(j.leftovers, l)
			j.count.held.Add(l.size)
		}
	}
	for _, l := range j.leftovers {
		for _, k := range j.leftovers {
			if before := k.head.before; before.end > 0 && l.intact && l.head.key.marker == before.marker {
				l.end = min(l.end, before.end)
			}
		}
	}
	slices.SortFunc(j.leftovers, func(a, b *Leftover) int {
		return cmp.Or(cmp.Compare(a.born, b.born), cmp.Compare(a.head.generation, b.head.generation), cmp.Compare(a.path, b.path))
	})
	return nil
}

// adoptFile returns nil for a file that holds nothing, or nothing that another does not hold too; that is removed.
func (j *Journal) adoptFile(path string, unfinished bool) (_ *Leftover, err error) {
	f, info, err := openLocked(path, 0)
	if err != nil {
		return nil, err
	}
	l := &Leftover{journal: j, file: f, path: path, size: info.Size(), born: info.ModTime().UnixMilli()}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	l.end = l.size
	if unfinished || l.size <= headerSize {
		defer f.Close()
		return nil, errors.Join(os.Remove(path), j.opt.disk.syncDir(j.opt.Dir))
	}
	if err := l.readHeader(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Leftover) readHeader() error {
	b := make([]byte, headerSize)
	if _, err := l.file.ReadAt(b, 0); err == nil { // else the reader takes it for damaged
		l.head, l.intact = decodeHeader(b)
	}
	if l.intact && l.head.version > version {
		return fmt.Errorf("version %d: %w", l.head.version, errNewer)
	}
	if l.intact {
		l.born = l.head.born
	}
	return nil
}

// Path is the file's.
func (l *Leftover) Path() string { return l.path }

// Size is the file's, in bytes.
func (l *Leftover) Size() int64 { return l.size }

// Next returns up to n entries in file order, and io.EOF when there are no more. Entries that are damaged or older than
// Lifetime are skipped; how many is counted, and logged at the end of the file. After another error it may be called
// again. It never holds more of the file in memory than a chunk, or an entry.
func (l *Leftover) Next(n int) ([]Entry, error) {
	list, err := l.next(max(n, 1))
	l.read += int64(len(list))
	l.journal.count.replayed.Add(int64(len(list)))
	switch {
	case len(list) > 0:
		return list, nil
	case errors.Is(err, io.EOF):
		l.report()
		return nil, io.EOF
	}
	return nil, fmt.Errorf("journal %s: %w", l.path, err)
}

func (l *Leftover) next(n int) ([]Entry, error) {
	if l.reader == nil {
		if err := l.start(); err != nil {
			return nil, err
		}
	}
	var list []Entry
	for len(list) < n {
		e, err := l.reader.next()
		if err != nil {
			return list, err
		}
		if l.journal.expired(&e) {
			l.expired++
			continue
		}
		list = append(list, e)
	}
	return list, nil
}

func (l *Leftover) start() error {
	r, err := newReader(l.file, l.end, l.head, l.intact)
	if err != nil {
		return err
	}
	r.firm = r.firm || l.end < l.size
	for _, s := range l.journal.opt.Scripts {
		r.scripts[digestOf(s)] = s
	}
	l.reader = r
	return nil
}

// report says what was found in the file, once.
func (l *Leftover) report() {
	if l.ended {
		return
	}
	l.ended = true
	j, r := l.journal, l.reader
	j.count.damaged.Add(r.damaged)
	j.count.torn.Add(r.torn)
	log := j.opt.Log.With("file", l.path, "entries", l.read)
	log.Info("journal of an earlier process read", "torn_bytes", r.torn)
	if l.expired > 0 {
		log.Error("journal entries are too old to be replayed", "expired", l.expired, "lifetime", Lifetime)
	}
	if r.damaged > 0 {
		log.Error("journal is damaged", "bytes", r.damaged, "first_place", r.first)
	}
}

// expired says whether an entry is too old, and counts it.
func (j *Journal) expired(e *Entry) bool {
	if j.opt.Now().Sub(e.At) <= Lifetime {
		return false
	}
	j.count.expired.Add(1)
	return true
}

// Remove removes the file, because all of it was answered; a damaged one is kept aside as `.damaged`. Before Next has
// returned io.EOF that is an error. After an error it may be called again; Remove is idempotent.
func (l *Leftover) Remove() error {
	if l.removed {
		return nil
	}
	if !l.ended {
		return fmt.Errorf("journal %s: remove: not read to its end", l.path)
	}
	err := l.take()
	if err == nil {
		l.removed = true
		l.journal.count.held.Add(-l.size)
		err = l.journal.opt.disk.syncDir(l.journal.opt.Dir)
		l.file.Close() // the lock goes after the name
	}
	if err != nil {
		return fmt.Errorf("journal %s: remove: %w", l.path, err)
	}
	return nil
}

// take takes the file's name out of the way of the next start.
func (l *Leftover) take() error {
	if l.reader.damaged == 0 {
		return os.Remove(l.path)
	}
	aside := l.path + damagedSuffix
	for i := 2; ; i++ {
		if _, err := os.Lstat(aside); errors.Is(err, os.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s%s.%d", l.path, damagedSuffix, i)
	}
	l.journal.opt.Log.Error("damaged journal is kept aside", "file", aside)
	return os.Rename(l.path, aside)
}

// closeLeftovers leaves what was not removed for the next start.
func (j *Journal) closeLeftovers() {
	for _, l := range j.leftovers {
		l.file.Close()
	}
}
