package identity

import (
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"strings"
)

// A secret that tollgate makes is secretPrefix, secretRandom base62 characters (190 bits) and the CRC-32 of all that
// in checksumLength base62 characters, as GitHub's tokens have it: secret scanners tell a real key from a look-alike
// without asking anybody.
const (
	secretPrefix   = "sk-tg-"
	secretRandom   = 32
	checksumLength = 6
	base62         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewSecret makes the secret of a new key. It fails only when the system has no randomness.
func NewSecret() (string, error) {
	secret := make([]byte, 0, len(secretPrefix)+secretRandom+checksumLength)
	secret = append(secret, secretPrefix...)
	var room [2 * secretRandom]byte
	for len(secret) < len(secretPrefix)+secretRandom {
		if _, err := rand.Read(room[:]); err != nil {
			return "", fmt.Errorf("read randomness for a key: %w", err)
		}
		for _, b := range room {
			// 248 is the largest multiple of 62 in a byte: dropping the rest keeps all characters equally likely.
			if b < 248 && len(secret) < len(secretPrefix)+secretRandom {
				secret = append(secret, base62[b%62])
			}
		}
	}
	return string(appendChecksum(secret, crc32.ChecksumIEEE(secret))), nil
}

// LooksLikeKey reports whether s has the form and the checksum of a secret that tollgate made. It says nothing about
// whether the key exists.
func LooksLikeKey(s string) bool {
	if len(s) != len(secretPrefix)+secretRandom+checksumLength || !strings.HasPrefix(s, secretPrefix) {
		return false
	}
	for i := len(secretPrefix); i < len(s); i++ {
		if strings.IndexByte(base62, s[i]) < 0 {
			return false
		}
	}
	body, sum := s[:len(s)-checksumLength], s[len(s)-checksumLength:]
	return string(appendChecksum(nil, crc32.ChecksumIEEE([]byte(body)))) == sum
}

// appendChecksum appends sum in base62, most significant digit first, filled with zeros.
func appendChecksum(dst []byte, sum uint32) []byte {
	var digits [checksumLength]byte
	for i := checksumLength - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return append(dst, digits[:]...)
}
