package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// chunk is how much is read from the file at once.
	chunk = 256 << 10
	// page is what a disk fails to read as a whole.
	page = 4 << 10
	// maxUnreadable is how many pages of a file may be unreadable before the disk itself is taken to be broken.
	maxUnreadable = 64
)

// reader reads the records of one file in order. Whatever is not intact is skipped and counted.
type reader struct {
	src     io.ReaderAt
	key     key
	off     int64 // of the next record
	end     int64 // of the file
	scripts map[digest]Script
	// firm is set when the end is known to be that of a record: what is wrong there is damage. Else it is a torn end.
	firm bool
	// trusted is the place up to which the disk has confirmed everything. Damage behind it is an error, not skipped: the
	// same entries are about to be written again.
	trusted int64

	damaged int64 // bytes of damaged records
	torn    int64 // bytes dropped at the end
	first   int64 // place of the first damage

	window     []byte
	windowAt   int64
	unreadable int
}

// errUntrusted is met while a failed fsync has not been made good for.
var errUntrusted = errors.New("the end of the journal cannot be read back before it is synced")

// newReader reads a file of end bytes whose header was found to be h, or not intact.
func newReader(src io.ReaderAt, end int64, h header, intact bool) (*reader, error) {
	r := &reader{src: src, key: h.key, off: headerSize, end: end, trusted: end, scripts: map[digest]Script{}}
	if intact {
		return r, nil
	}
	r.firm = true
	r.damage(0, min(headerSize, end))
	if end < headerSize+prefixSize {
		r.off = end
		return r, nil
	}
	// The first record stands at a known place, so it tells the marker too; its checksum says whether it is right.
	b, err := r.load(headerSize, prefixSize)
	if err != nil {
		return nil, err
	}
	r.key = keyOf(b[:8])
	return r, nil
}

// next returns the next intact entry, io.EOF behind the last.
func (r *reader) next() (Entry, error) {
	for r.off < r.end {
		body, err := r.record(r.off)
		if err != nil {
			return Entry{}, err
		}
		if body == nil {
			if r.off >= r.trusted {
				return Entry{}, errUntrusted
			}
			if err := r.resync(); err != nil {
				return Entry{}, err
			}
			continue
		}
		at := r.off
		r.off += int64(prefixSize + len(body))
		p := payload{rest: string(body)}
		switch p.byte() {
		case kindScript:
			if s, ok := p.script(); ok {
				r.scripts[digestOf(s)] = s
				continue
			}
		case kindEntry:
			e, digest, ok := p.entry()
			if script, known := r.scripts[digest]; ok && known {
				e.Script = script
				return e, nil
			}
		}
		r.damage(at, r.off) // its script is lost, or no version 1 wrote it
	}
	return Entry{}, io.EOF
}

// record returns the payload of the record at a place, nil when there is no intact one. It is valid until the next load.
func (r *reader) record(at int64) ([]byte, error) {
	if r.end-at < prefixSize {
		return nil, nil
	}
	b, err := r.load(at, prefixSize)
	if err != nil {
		return nil, err
	}
	if [8]byte(b) != r.key.marker {
		return nil, nil
	}
	n := int64(binary.LittleEndian.Uint32(b[12:]))
	if n == 0 || n > MaxEntry || n > r.end-at-prefixSize {
		return nil, nil
	}
	if b, err = r.load(at, prefixSize+n); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(b[8:]) != r.key.checksum(at, b[12:]) {
		return nil, nil
	}
	return b[prefixSize:], nil
}

// resync goes to the next intact record, or to the end of the file.
func (r *reader) resync() error {
	for at := r.off + 1; r.end-at >= prefixSize; {
		b, err := r.load(at, min(r.end-at, chunk))
		if err != nil {
			return err
		}
		i := bytes.Index(b, r.key.marker[:])
		if i < 0 {
			at += int64(len(b)) - 7 // a marker may lie across
			continue
		}
		at += int64(i)
		body, err := r.record(at)
		if err != nil {
			return err
		}
		if body != nil {
			r.damage(r.off, at)
			r.off = at
			return nil
		}
		at++
	}
	if r.firm {
		r.damage(r.off, r.end)
	} else {
		r.torn += r.end - r.off
	}
	r.off = r.end
	return nil
}

func (r *reader) damage(from, to int64) {
	if r.damaged == 0 {
		r.first = from
	}
	r.damaged += to - from
}

// load returns n bytes of the file, all of them before its end, valid until the next load.
func (r *reader) load(at, n int64) ([]byte, error) {
	if at >= r.windowAt && at+n <= r.windowAt+int64(len(r.window)) {
		return r.window[at-r.windowAt:][:n], nil
	}
	size := min(max(n, chunk), r.end-at)
	if int64(cap(r.window)) < size {
		r.window = make([]byte, size)
	}
	r.window, r.windowAt = r.window[:size], at
	if _, err := r.src.ReadAt(r.window, at); err != nil {
		if err := r.readPages(); err != nil {
			r.window = r.window[:0]
			return nil, err
		}
	}
	return r.window[:n], nil
}

// readPages fills the window page by page; one that cannot be read is taken for damage, so that what lies behind a bad
// sector is still found.
func (r *reader) readPages() error {
	for from := 0; from < len(r.window); {
		to := min(len(r.window), from+page-int((r.windowAt+int64(from))%page))
		if _, err := r.src.ReadAt(r.window[from:to], r.windowAt+int64(from)); err != nil {
			clear(r.window[from:to])
			if r.unreadable++; r.unreadable > maxUnreadable {
				return fmt.Errorf("the journal cannot be read: %w", err)
			}
		}
		from = to
	}
	return nil
}
