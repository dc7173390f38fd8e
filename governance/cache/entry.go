package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// Entry is a stored answer.
type Entry struct {
	Stored      time.Time
	Status      int         // 2xx
	Model       string      // the model that really served
	Usage       usage.Usage // what the answer cost its first caller in tokens: what a hit saves
	ContentType string
	Body        []byte
}

// Age is how old the entry is, in whole seconds, as the header "age" has it. A clock that is behind makes it 0.
func (e Entry) Age(now time.Time) int64 { return max(0, int64(now.Sub(e.Stored)/time.Second)) }

// magic begins every stored entry; its last byte is the version of the form.
const magic = "tgc\x01"

// maxText bounds the model and the content type of an entry, in bytes.
const maxText = 4096

// Encode is the stored form of an entry under its key: magic, SHA-256 over key and all that follows, then the fields.
// The key takes part so that an entry copied or restored to another key is no entry there.
func (e Entry) Encode(k Key) []byte {
	dst := make([]byte, len(magic)+sha256.Size, len(magic)+sha256.Size+len(e.Model)+len(e.ContentType)+len(e.Body)+96)
	copy(dst, magic)
	dst = binary.AppendVarint(dst, e.Stored.UnixNano())
	dst = binary.AppendUvarint(dst, uint64(e.Status))
	for _, n := range counts(&e.Usage) {
		dst = binary.AppendUvarint(dst, uint64(max(0, *n)))
	}
	dst = appendField(dst, e.Model)
	dst = appendField(dst, e.ContentType)
	dst = append(dst, e.Body...)
	sum := checksum(k, dst[len(magic)+sha256.Size:])
	copy(dst[len(magic):], sum[:])
	return dst
}

// Decode reads what Encode wrote. Whatever is truncated, damaged, of another version or of another key is an error,
// and a miss. The entry's body shares data's memory.
func Decode(k Key, data []byte) (Entry, error) {
	if len(data) < len(magic)+sha256.Size || string(data[:len(magic)]) != magic {
		return Entry{}, errors.New("cached answer: not in the form of this version")
	}
	sum, rest := data[len(magic):len(magic)+sha256.Size], data[len(magic)+sha256.Size:]
	if checksum(k, rest) != [sha256.Size]byte(sum) {
		return Entry{}, errors.New("cached answer: damaged, or of another key")
	}
	r := reader{rest: rest}
	e := Entry{Stored: time.Unix(0, r.varint()).UTC(), Status: int(r.uvarint(math.MaxInt16))}
	for _, n := range counts(&e.Usage) {
		*n = int64(r.uvarint(math.MaxInt64))
	}
	e.Model = r.text()
	e.ContentType = r.text()
	e.Body = r.rest
	if r.err != nil {
		return Entry{}, fmt.Errorf("cached answer: %w", r.err)
	}
	if e.Status < 200 || e.Status > 299 || len(e.Body) == 0 || strings.ContainsAny(e.ContentType, "\r\n\x00") {
		return Entry{}, errors.New("cached answer: not an answer that is stored")
	}
	return e, nil
}

// counts are the fields of a usage, in their stored order.
func counts(u *usage.Usage) [7]*int64 {
	return [7]*int64{&u.Input, &u.CacheRead, &u.CacheWrite, &u.CacheWrite1h, &u.CacheWrite12h, &u.Output, &u.Reasoning}
}

func checksum(k Key, rest []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(k[:])
	h.Write(rest)
	h.Sum(sum[:0])
	return sum
}

// reader reads fields one after another; after the first error all are zero.
type reader struct {
	rest []byte
	err  error
}

var errTruncated = errors.New("truncated")

func (r *reader) uvarint(limit uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > limit {
		r.rest, r.err = nil, errTruncated
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) varint() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.rest, r.err = nil, errTruncated
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string {
	n := r.uvarint(maxText)
	if n > uint64(len(r.rest)) {
		r.rest, r.err = nil, errTruncated
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}
