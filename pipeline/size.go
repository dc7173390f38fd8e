package pipeline

import (
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// sentSize is how many bytes a command takes on the wire: an array of bulk strings.
func sentSize(args []any) int64 {
	size := headSize(len(args))
	for _, a := range args {
		switch v := a.(type) {
		case string:
			size += bulkSize(len(v))
		case []byte:
			size += bulkSize(len(v))
		case int:
			size += bulkSize(digits(int64(v)))
		case int64:
			size += bulkSize(digits(v))
		case float64:
			var room [32]byte
			size += bulkSize(len(strconv.AppendFloat(room[:0], v, 'f', -1, 64)))
		case bool:
			size += bulkSize(1) // 0 or 1
		default:
			size += bulkSize(len(fmt.Sprint(v)))
		}
	}
	return size
}

// receivedSize is how many bytes a command's reply took; 0 when there was none.
func receivedSize(c redis.Cmder) int64 {
	switch err := c.Err(); {
	case err == nil:
	case isReply(err):
		return replySize(err)
	default:
		return 0
	}
	if cmd, ok := c.(*redis.Cmd); ok {
		return replySize(cmd.Val())
	}
	return 0
}

// replySize is the size of a reply of protocol 2. A status reads like a string once it has been parsed: the ones that
// Redis gives are told by their text.
func replySize(v any) int64 {
	switch v := v.(type) {
	case nil:
		return int64(len("$-1\r\n"))
	case string:
		if v == "OK" || v == "PONG" {
			return lineSize(len(v))
		}
		return bulkSize(len(v))
	case int64:
		return lineSize(digits(v))
	case []any:
		size := headSize(len(v))
		for _, e := range v {
			size += replySize(e)
		}
		return size
	case error:
		if v == redis.Nil { //nolint:errorlint // a nil reply is this very value
			return replySize(nil)
		}
		return lineSize(len(v.Error()))
	default:
		return lineSize(len(fmt.Sprint(v)))
	}
}

// lineSize is that of a type byte, a text and the end of the line.
func lineSize(n int) int64 { return int64(n) + 3 }

// headSize is that of the line that tells the length of what follows.
func headSize(n int) int64 { return lineSize(digits(int64(n))) }

func bulkSize(n int) int64 { return headSize(n) + int64(n) + 2 }

// digits is the length of a number in decimal, with its sign.
func digits(n int64) int {
	var room [20]byte
	return len(strconv.AppendInt(room[:0], n, 10))
}
