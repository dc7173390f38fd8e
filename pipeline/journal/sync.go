package journal

import (
	"errors"
	"fmt"
	"os"
	"sort"
)

// Sync returns once everything appended before is on disk. After a failed fsync nothing that the file holds behind the
// last good one can be trusted, and asking again proves nothing: the kernel reports an error once and may have dropped
// the data (PostgreSQL's fsync bug of 2018). So the entries are written again into a new file. If that works, Sync
// returns nil; the error was counted and logged. Else it returns both errors, and Append and Sync try it again.
func (j *Journal) Sync() error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	s, end, epoch := j.active, j.active.end, j.epoch
	switch {
	case j.closed:
		j.mu.Unlock()
		return fmt.Errorf("journal: sync: %w", os.ErrClosed)
	case j.broken != nil:
		defer j.mu.Unlock()
		return j.rewrite()
	case end == j.synced:
		j.mu.Unlock()
		return nil
	}
	j.mu.Unlock()
	err := s.file.Sync() // only a failed one replaces the active file
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.count.syncErrors.Add(1)
		j.broken = err
		return j.rewrite()
	}
	if j.epoch == epoch { // else a Reset has come in between, and nobody waits for what there was
		j.synced = end
		j.forget(end)
	}
	return nil
}

// forget drops the entries before a place: they are on disk.
func (j *Journal) forget(end int64) {
	n := sort.Search(len(j.unsynced), func(i int) bool { return j.unsynced[i].at >= end })
	kept := copy(j.unsynced, j.unsynced[n:])
	clear(j.unsynced[kept:])
	j.unsynced = j.unsynced[:kept]
}

// rewrite makes good for a failed fsync.
func (j *Journal) rewrite() error {
	cause := j.broken
	n := len(j.unsynced)
	if err := j.moveOn(); err != nil {
		j.count.syncErrors.Add(1)
		j.opt.Log.Error("journal: fsync failed, and so did writing again", "file", j.active.path,
			"fsync", cause, "error", err, "entries", n)
		return fmt.Errorf("journal: sync: %w; writing again: %w", cause, err)
	}
	j.count.rewritten.Add(int64(n))
	j.opt.Log.Error("journal: fsync failed; what it was for was written again into a new file", "file", j.active.path,
		"error", cause, "entries", n)
	return nil
}

// maxFiles bounds the open files of a journal on a disk that fails again and again.
const maxFiles = 64

// moveOn seals the active file at its last good fsync and puts the entries behind that into a new one, synced. That gets
// its name when it is complete, and from then on the old one counts no further than its seal.
func (j *Journal) moveOn() error {
	if len(j.sealed)+len(j.stuck) >= maxFiles {
		return fmt.Errorf("%d files already", maxFiles)
	}
	old := j.active
	_ = os.Remove(j.path(rewriteSuffix)) // of an attempt before
	s, err := j.create(j.path(rewriteSuffix), old.head.generation+1, origin{old.head.key.marker, j.synced})
	if err != nil {
		return err
	}
	j.active, j.buf = s, j.buf[:0]
	defer j.shrink()
	moves := make([]moved, len(j.unsynced), len(j.unsynced)+1)
	for i := range j.unsynced {
		to, err2 := j.encode(&j.unsynced[i].entry) // fitted before
		err = errors.Join(err, err2)
		moves[i] = moved{j.unsynced[i].at, to}
	}
	if err == nil {
		_, err = s.file.WriteAt(j.buf, headerSize)
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err == nil {
		err = j.publish(s)
	}
	if err != nil {
		j.active = old
		j.discard(s)
		return err
	}
	s.end += int64(len(j.buf))
	s.size = s.end
	old.moved, old.next = append(moves, moved{old.end, s.end}), s.head.generation
	old.end = j.synced
	j.sealed = append(j.sealed, old)
	j.count.held.Add(s.size)
	j.synced = s.end
	j.unsynced, j.broken, j.ragged = nil, nil, false
	return nil
}

// publish gives a complete file its name, one that is free.
func (j *Journal) publish(s *segment) error {
	for i := s.head.generation; ; i++ {
		path := j.path(fmt.Sprintf(".%d%s", i, suffix))
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			if err != nil {
				return err
			}
			continue
		}
		if err := os.Rename(s.path, path); err != nil {
			return err
		}
		s.path = path
		return j.opt.disk.syncDir(j.opt.Dir)
	}
}

// Reset drops everything that was appended, because all of it was answered: the journal is an empty file again. An
// entry appended at the same time may go with it, so whoever appends must be the one to reset. After an error, or a loss
// of power, some of it may be found by the next start, which does no harm.
func (j *Journal) Reset() error {
	j.reading.Lock()
	defer j.reading.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return fmt.Errorf("journal: reset: %w", os.ErrClosed)
	}
	if j.size() == 0 && len(j.sealed) == 0 {
		return nil
	}
	if err := j.active.file.Truncate(headerSize); err != nil {
		return fmt.Errorf("journal: reset: %w", err)
	}
	j.count.held.Add(headerSize - j.active.size)
	j.active.end, j.active.size, j.synced = headerSize, headerSize, headerSize
	clear(j.unsynced)
	j.active.known = nil
	j.unsynced, j.broken, j.ragged = j.unsynced[:0], nil, false
	j.epoch++
	sealed := j.sealed
	j.sealed = nil
	if len(sealed) == 0 {
		return nil
	}
	err := j.remove(sealed)
	for _, s := range sealed {
		s.file.Close()
	}
	if err != nil {
		return fmt.Errorf("journal: reset: %w", err)
	}
	return nil
}
