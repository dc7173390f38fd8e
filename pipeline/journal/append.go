package journal

import (
	"fmt"
	"os"
	"time"
)

// Append writes entries behind each other with one write; all or nothing. They outlive the process at once, the machine
// after the next Sync. Until then the journal keeps them, so their lists must not be changed. ErrFull says that Max is
// reached; any other error is the disk's or that of an entry beyond MaxEntry. It is counted, and the journal is as it
// was before.
//
// While many entries wait for a Sync, Append calls it first. While a failed one is not made good for, Append fails.
func (j *Journal) Append(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	err := j.append(entries)
	if err != nil {
		j.count.appendErrors.Add(1)
		return fmt.Errorf("journal: append: %w", err)
	}
	return nil
}

func (j *Journal) append(entries []Entry) error {
	if j.unsyncedBytes() >= maxUnsynced {
		if err := j.Sync(); err != nil {
			return err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return os.ErrClosed
	}
	if j.broken != nil {
		if err := j.rewrite(); err != nil {
			return err
		}
	}
	if err := j.trim(); err != nil {
		return err
	}
	waiting, known := len(j.unsynced), len(j.active.known)
	err := j.write(entries)
	if err != nil {
		clear(j.unsynced[waiting:])
		j.unsynced, j.active.known = j.unsynced[:waiting], j.active.known[:known]
	}
	j.shrink()
	return err
}

// shrink lets go of a buffer that a large batch needed.
func (j *Journal) shrink() {
	if cap(j.buf) > maxBuffer {
		j.buf = nil
	}
}

func (j *Journal) unsyncedBytes() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.active.end - j.synced
}

// trim cuts off what a failed write left: behind a shorter record it could pass for entries.
func (j *Journal) trim() error {
	if !j.ragged {
		return nil
	}
	if err := j.active.file.Truncate(j.active.end); err != nil {
		return err
	}
	j.ragged = false
	return nil
}

// write encodes and writes entries at the end of the active file.
func (j *Journal) write(entries []Entry) error {
	var now time.Time
	j.buf = j.buf[:0]
	for i := range entries {
		e := entries[i]
		if e.At.IsZero() {
			if now.IsZero() {
				now = j.opt.Now()
			}
			e.At = now
		}
		at, err := j.encode(&e)
		if err != nil {
			return err
		}
		j.unsynced = append(j.unsynced, pending{e, at})
	}
	n := int64(len(j.buf))
	if j.count.held.Load()+n > j.opt.Max {
		return ErrFull
	}
	if _, err := j.active.file.WriteAt(j.buf, j.active.end); err != nil {
		j.ragged = true
		_ = j.trim() // else the next Append does it first
		return err
	}
	j.active.end += n
	j.active.size += n
	j.count.held.Add(n)
	j.count.bytes.Add(n)
	j.count.entries.Add(int64(len(entries)))
	return nil
}

// encode puts an entry into the buffer, which is going to stand at the end of the active file, behind its script if the
// file does not hold that. It says where the entry's record begins.
func (j *Journal) encode(e *Entry) (int64, error) {
	s := j.active
	var script *digest
	for i := range s.known { // few, and equal strings are mostly the same ones
		if s.known[i].script == e.Script {
			script = &s.known[i].digest
			break
		}
	}
	if script == nil {
		d := digestOf(e.Script)
		script = &d
		start := len(j.buf)
		j.buf = appendScript(beginRecord(j.buf, &s.head.key, kindScript), e.Script)
		if err := finishRecord(j.buf, start, &s.head.key, s.end+int64(start)); err != nil {
			return 0, err
		}
		s.known = append(s.known, reference{e.Script, d})
	}
	start := len(j.buf)
	at := s.end + int64(start)
	j.buf = appendEntry(beginRecord(j.buf, &s.head.key, kindEntry), e, script)
	return at, finishRecord(j.buf, start, &s.head.key, at)
}
