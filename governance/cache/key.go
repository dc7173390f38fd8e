package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Key is what an answer is filed under.
type Key [sha256.Size]byte

// Redis is the name of the entry in Redis: "tg:c:<hex>" for the prefix "tg".
func (k Key) Redis(prefix string) string {
	name := make([]byte, 0, len(prefix)+len(":c:")+2*len(k))
	name = append(name, prefix...)
	name = append(name, ":c:"...)
	return string(hex.AppendEncode(name, k[:]))
}

// Request is what makes two requests the same to the cache.
type Request struct {
	Endpoint string // "chat"
	Model    string // after aliases; it stands for the body's own
	ScopeID  string // whose answers these are: ScopeID
	// Variant is whatever else chooses the answer: the values of headers that the upstream obeys (anthropic-version,
	// anthropic-beta), the region rule in force. Order matters; the caller keeps it fixed.
	Variant []string
	Body    []byte // JSON, after content decoding
}

// keyVersion changes when the derivation does, so that old entries are misses.
const keyVersion = "tollgate cache key 1"

// KeyOf derives the key of a request: SHA-256 over endpoint, model, scope, variant and the body in canonical form, minus
// the members that cannot change the answer. The order of members and the spelling of strings and numbers do not
// matter; every other difference does.
//
// The error wraps ErrUncacheable when the request's answer must not be kept or served again; any other error means
// that the body is no JSON object.
func KeyOf(r Request) (Key, error) {
	c := newCanonical(r.Body)
	defer c.release()
	c.out = appendField(c.out, keyVersion)
	c.out = appendField(c.out, r.Endpoint)
	c.out = appendField(c.out, r.Model)
	c.out = appendField(c.out, r.ScopeID)
	c.out = binary.AppendUvarint(c.out, uint64(len(r.Variant)))
	for _, v := range r.Variant {
		c.out = appendField(c.out, v)
	}
	if err := c.request(); err != nil {
		return Key{}, err
	}
	return sha256.Sum256(c.out), nil
}

// appendField puts the length before the text, so that no two lists of fields run together into the same bytes.
func appendField(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}
