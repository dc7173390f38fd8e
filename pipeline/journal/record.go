package journal

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// Entry is one deferred write.
type Entry struct {
	// At is when it was journalled, in milliseconds: the rest is cut off. Append takes the zero time for now.
	At time.Time
	// Owner is the request or job it is written for.
	Owner string
	// Writer and Seq are the id and the number under which it is applied exactly once.
	Writer string
	Seq    int64
	Script Script
	// Keys and Args may hold any bytes. An empty list is read back as nil.
	Keys, Args []string
}

// Script is what an entry runs.
type Script struct{ Name, Source string }

// MaxEntry is the most bytes that one entry or one script may take in the file. It bounds what reading a damaged
// length can ask of memory.
const MaxEntry = 16 << 20

const (
	version    = 1
	headerSize = 52
	// prefixSize is what stands before a payload: marker, checksum, length.
	prefixSize = 16
)

// magic begins every journal.
const magic = "tgjournl"

// The kinds of payload: their first byte.
const (
	kindScript = 1
	kindEntry  = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// key is what a file's records are known by.
type key struct {
	marker [8]byte
	seed   uint32
}

func keyOf(marker []byte) key {
	return key{[8]byte(marker), crc32.Checksum(marker, castagnoli)}
}

// checksum is that of a record at place off. sealed is its length and payload.
func (k *key) checksum(off int64, sealed []byte) uint32 {
	return crc32.Update(k.seed^uint32(off)^uint32(off>>32), castagnoli, sealed)
}

// header is the first 52 bytes of a file, laid out alike in every version: magic (8), version (4), generation (4), born
// (8, unix ms), marker (8), marker and good end of the file before (8, 8; zero in the first), CRC-32C of these (4).
type header struct {
	version    uint32
	generation uint32 // 1, 2, ...: the files of one journal in order
	born       int64  // when the process opened its journal, unix ms
	key        key
	before     origin
}

// origin says which file this one continues, and from where on: what stands behind that place was written again here.
// Reading it there as well could put later entries before earlier ones, if only some of it had reached the disk.
type origin struct {
	marker [8]byte
	end    int64
}

// newHeader makes a header with a marker of its own.
func newHeader(generation uint32, born int64, before origin) header {
	var marker [8]byte
	_, _ = rand.Read(marker[:]) // never fails: see its doc
	return header{version, generation, born, keyOf(marker[:]), before}
}

func (h *header) encode() []byte {
	b := make([]byte, 0, headerSize)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, h.version)
	b = binary.LittleEndian.AppendUint32(b, h.generation)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.born))
	b = append(b, h.key.marker[:]...)
	b = append(b, h.before.marker[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.before.end))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeHeader says whether b is an intact header.
func decodeHeader(b []byte) (header, bool) {
	const sum = headerSize - 4
	if len(b) < headerSize || string(b[:8]) != magic ||
		binary.LittleEndian.Uint32(b[sum:]) != crc32.Checksum(b[:sum], castagnoli) {
		return header{}, false
	}
	return header{
		version:    binary.LittleEndian.Uint32(b[8:]),
		generation: binary.LittleEndian.Uint32(b[12:]),
		born:       int64(binary.LittleEndian.Uint64(b[16:])),
		key:        keyOf(b[24:32]),
		before:     origin{[8]byte(b[32:]), int64(binary.LittleEndian.Uint64(b[40:]))},
	}, true
}

// digest names a script inside a file.
type digest [16]byte

func digestOf(s Script) digest {
	h := sha256.New()
	_, _ = h.Write(appendString(nil, s.Name)) // the length sets name and source apart
	_, _ = h.Write([]byte(s.Source))
	return digest(h.Sum(nil))
}

// beginRecord leaves room for what finishRecord fills in.
func beginRecord(b []byte, k *key, kind byte) []byte {
	b = append(b, k.marker[:]...)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, kind)
}

// finishRecord completes the record that begins at b[start] and will stand at place off of the file.
func finishRecord(b []byte, start int, k *key, off int64) error {
	n := len(b) - start - prefixSize
	if n > MaxEntry {
		return fmt.Errorf("an entry of %d bytes: the most is %d", n, MaxEntry)
	}
	r := b[start:]
	binary.LittleEndian.PutUint32(r[12:], uint32(n))
	binary.LittleEndian.PutUint32(r[8:], k.checksum(off, r[12:]))
	return nil
}

func appendScript(b []byte, s Script) []byte {
	b = appendString(b, s.Name)
	return appendString(b, s.Source)
}

func appendEntry(b []byte, e *Entry, script *digest) []byte {
	b = binary.AppendVarint(b, e.At.UnixMilli())
	b = binary.AppendVarint(b, e.Seq)
	b = append(b, script[:]...)
	b = appendString(b, e.Owner)
	b = appendString(b, e.Writer)
	b = appendStrings(b, e.Keys)
	return appendStrings(b, e.Args)
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}
