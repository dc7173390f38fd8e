package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
)

// Mark is a place in this process' own journal. It is good until the next Reset. The zero Mark is the beginning.
type Mark struct {
	epoch      int64
	generation uint32
	offset     int64
}

// Mark is the place behind what has been appended.
func (j *Journal) Mark() Mark {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Mark{j.epoch, j.active.head.generation, j.active.end}
}

// ReadFrom reads back up to n entries from a mark on, in the order of their Append, and returns the mark from which to
// go on, after an error too. io.EOF: nothing follows yet. Damaged and expired entries are skipped, counted and logged.
func (j *Journal) ReadFrom(mark Mark, n int) ([]Entry, Mark, error) {
	n = max(n, 1)
	j.reading.Lock()
	defer j.reading.Unlock()
	var list []Entry
	for len(list) < n {
		s, r, err := j.locate(mark)
		if err == nil {
			list, err = j.readSegment(s, r, list, n)
			mark = Mark{j.epoch, s.head.generation, r.off} // no Reset comes in between
		}
		switch {
		case err == nil:
		case len(list) > 0:
			return list, mark, nil
		case errors.Is(err, io.EOF):
			return nil, mark, io.EOF
		default:
			return nil, mark, fmt.Errorf("journal: read back: %w", err)
		}
	}
	return list, mark, nil
}

// readSegment adds entries of one file to list until there are n, or the file ends.
func (j *Journal) readSegment(s *segment, r *reader, list []Entry, n int) ([]Entry, error) {
	r.window = j.window[:0]
	var err error
	for len(list) < n && err == nil {
		var e Entry
		if e, err = r.next(); err == nil && !j.expired(&e) {
			list = append(list, e)
		}
	}
	if cap(r.window) <= maxBuffer {
		j.window = r.window
	}
	if r.damaged > 0 {
		j.count.damaged.Add(r.damaged)
		j.opt.Log.Error("journal is damaged: entries were skipped", "file", s.path, "first_place", r.first, "bytes", r.damaged)
	}
	if errors.Is(err, io.EOF) {
		return list, nil // the next file, if any, follows
	}
	return list, err
}

// locate finds the file that holds what follows a mark, and a reader that begins there. io.EOF: nothing does.
func (j *Journal) locate(mark Mark) (*segment, *reader, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	files := append(j.sealed[:len(j.sealed):len(j.sealed)], j.active)
	switch {
	case j.closed:
		return nil, nil, os.ErrClosed
	case mark == Mark{}:
		mark = Mark{j.epoch, files[0].head.generation, headerSize}
	case mark.epoch != j.epoch:
		return nil, nil, errors.New("the mark is of before the last reset")
	}
	for _, s := range files {
		if s.head.generation != mark.generation {
			continue
		}
		if mark.offset < s.end {
			return s, j.readerAt(s, mark.offset), nil
		}
		if s == j.active {
			break
		}
		// What stood behind the end was moved into the next file; the last move is that of the place behind all of it.
		k := sort.Search(len(s.moved)-1, func(k int) bool { return s.moved[k].from >= mark.offset })
		mark.generation, mark.offset = s.next, s.moved[k].to
	}
	return nil, nil, io.EOF
}

func (j *Journal) readerAt(s *segment, off int64) *reader {
	r := &reader{src: s.file, key: s.head.key, off: off, end: s.end, firm: true, trusted: s.end, scripts: map[digest]Script{}}
	if s == j.active {
		r.trusted = j.synced
	}
	for _, k := range s.known { // their records may stand before the mark
		r.scripts[k.digest] = k.script
	}
	return r
}
