package pipeline

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrUnavailable is what a handle returns when Redis did not answer its command: refused, cut, too late, or not asked
// because the breaker is open. errors.Is finds it; the cause is wrapped.
var ErrUnavailable = errors.New("redis is unavailable")

// ErrNil is the reply of a command about a key that is not there.
var ErrNil = redis.Nil

// errNotWritten marks a connection that failed before a byte of the batch left this process.
var errNotWritten = errors.New("nothing was written")

// setUpError says that the server refused to set the connection up, so that no command was sent. It does not unwrap: the
// server's refusal is no reply to a command.
type setUpError struct{ cause error }

func (e *setUpError) Error() string { return "no connection: " + e.cause.Error() }

// unavailable wraps a transport error.
func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

// notExecuted lists the replies by which a server says that it did not run a command, with where it stands in Redis.
var notExecuted = []string{
	"NOSCRIPT ",    // the script is not in the cache
	"LOADING ",     // the data set is still being read
	"READONLY ",    // a replica after a failover
	"MASTERDOWN ",  // a replica without its master
	"CLUSTERDOWN ", // no slot map
	"MOVED ", "ASK ", "TRYAGAIN ",
	"BUSY ",       // another client's script runs on and on
	"NOREPLICAS ", // writes are stopped because too few replicas follow
	"NOPERM ",     // judged before the command; a script that may not call one has another error
	"MISCONF ",    // writes are stopped because snapshots fail
	"OOM ",        // full, and the policy is noeviction; judged before the first command of a script
	"GAP ",        // a write that is applied once, when the one before it has not run; see NewOnce
}

// NotExecuted says whether err is a reply that proves that the command was not executed, so that sending it once more
// cannot apply it twice.
func NotExecuted(err error) bool {
	return isReply(err) && begins(err.Error(), notExecuted)
}

// turnedAway lists what a server says to a connection that it does not let in, whatever is sent on it.
var turnedAway = []string{
	"NOAUTH ", "WRONGPASS ", "ERR AUTH ", "ERR invalid password", "ERR DB index ", "ERR max number of clients ",
}

// isTurnedAway says whether err is a server's word about a connection, not about the command that it stands with. It is no
// answer to that: a password that was changed on one side must not pass for a write that was refused.
func isTurnedAway(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && begins(reply.Error(), turnedAway)
}

// isReply says whether err was sent by the server, so that the command was answered.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !begins(reply.Error(), turnedAway)
}

// begins says whether a text has one of several prefixes.
func begins(text string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// neverSent says whether err proves that the server has not looked at a byte of the batch.
func neverSent(err error) bool {
	var refused *setUpError
	if errors.Is(err, errNotWritten) || errors.As(err, &refused) || isTurnedAway(err) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func isNoScript(err error) bool { return hasPrefix(err, "NOSCRIPT ") }

// wrongServer says whether a reply tells that its server is not the master, or not ready to be one.
func wrongServer(err error) bool {
	return hasPrefix(err, "READONLY ") || hasPrefix(err, "LOADING ") || hasPrefix(err, "MASTERDOWN ")
}

// hasPrefix says whether err is a reply that begins so.
func hasPrefix(err error, prefix string) bool {
	return isReply(err) && strings.HasPrefix(err.Error(), prefix)
}
