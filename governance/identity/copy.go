package identity

import (
	_ "embed" // the scripts
	"strconv"
	"strings"

	"github.com/tollgate-proxy/tollgate/governance/limit"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

var (
	//go:embed copy.lua
	copySource string
	//go:embed raise.lua
	raiseSource string

	copyScript  = pipeline.NewScript("identity copy", copySource)
	raiseScript = pipeline.NewScript("identity revision", raiseSource)
)

// copyKey is the Redis key of an identity's copy. It has no TTL: copies and tombstones are bounded by the rows.
func copyKey(prefix string, ref Ref) string {
	return prefix + ":i:" + string(ref.Kind) + ":" + limit.Safe(ref.ID)
}

// channel is where edits are told.
func channel(prefix string) string { return prefix + ":invalidate" }

// message tells that an identity has another revision. The id stands last, for it may hold blanks.
func message(ref Ref, revision int64) string {
	return strconv.FormatInt(revision, 10) + " " + string(ref.Kind) + " " + ref.ID
}

func parseMessage(text string) (ref Ref, revision int64, ok bool) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return Ref{}, 0, false
	}
	revision, err := strconv.ParseInt(parts[0], 10, 64)
	return Ref{Kind(parts[1]), parts[2]}, revision, err == nil && revision > 0 && parts[2] != ""
}
