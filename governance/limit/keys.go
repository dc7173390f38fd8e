package limit

import (
	"crypto/sha256"
	"encoding/hex"
)

// Home is the hash tag of the Redis keys of what belongs together, so that Redis Cluster keeps them in one slot: a
// tenant's scopes, a model's deployments. The letter of the kind stands first, for an org and a team may have the same id.
func Home(kind, id string) string { return kind[:1] + ":" + safe(id) }

// safe is an id that can stand in a Redis key: a brace would end a hash tag early, and some ids are a client's to
// choose, so one that is long or has any unusual byte is replaced by its hash.
func safe(id string) string {
	ok := len(id) > 0 && len(id) <= 64
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	if ok {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "#" + hex.EncodeToString(sum[:16])
}

// keyOf is the key of one kind of counter of a scope: b budgets and revision, r rate window, l leases.
func keyOf(prefix, home, what, kind, id string) string {
	return prefix + ":{" + home + "}:" + what + ":" + kind + ":" + safe(id)
}

// RevisionKey is the hash that holds a scope's revision in the field [RevisionField], beside its budgets. Whoever edits
// an identity writes the new revision there, as a decimal number without a sign and without leading zeros, and no TTL:
// from then on no admission by an older revision is granted.
func RevisionKey(prefix, home, kind, id string) string { return keyOf(prefix, home, "b", kind, id) }

// RevisionField is the field of the hash at [RevisionKey] that holds the revision.
const RevisionField = "rev"

// writerKey holds the last number of a writer that was applied in a home's slot.
func writerKey(prefix, home, writer string) string { return prefix + ":{" + home + "}:w:" + writer }

// Safe is an id as it stands in the Redis keys of scopes, for keys of other packages.
func Safe(id string) string { return safe(id) }
