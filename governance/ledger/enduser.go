package ledger

import (
	"crypto/sha256"
	"encoding/hex"
)

// EndUser is an end user's id as the setting ledger.end_user lets a record keep it: plain, hash or drop.
func EndUser(setting, id string) string {
	switch {
	case id == "" || setting == "drop":
		return ""
	case setting == "hash":
		sum := sha256.Sum256([]byte(id))
		return hex.EncodeToString(sum[:16])
	default:
		return id
	}
}
