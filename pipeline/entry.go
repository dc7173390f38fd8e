package pipeline

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tollgate-proxy/tollgate/pipeline/journal"
)

// entry is a write as the journal keeps it.
func (x *write) entry() journal.Entry {
	args := make([]string, len(x.args))
	for i, a := range x.args {
		args[i] = wireText(a)
	}
	return journal.Entry{
		At: time.Unix(0, x.at), Owner: x.owner, Writer: x.writer, Seq: x.seq,
		Script: journal.Script{Name: x.script.name, Source: x.script.Source()}, Keys: x.keys, Args: args,
	}
}

// wireText is an argument as Redis sees it.
func wireText(a any) string {
	switch v := a.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		if v {
			return "1"
		}
		return "0"
	default:
		return fmt.Sprint(v)
	}
}

// write makes an entry a write again.
func (k *keeper) write(e *journal.Entry) *write {
	s := k.scripts[e.Script.Source]
	if s == nil {
		s = NewScript(e.Script.Name, e.Script.Source)
		k.scripts[e.Script.Source] = s
	}
	args := make([]any, len(e.Args))
	for i, a := range e.Args {
		args[i] = a
	}
	x := &write{owner: e.Owner, script: s, keys: e.Keys, args: args, once: true, writer: e.Writer, seq: e.Seq, at: e.At.UnixNano()}
	x.size = sizeOf(x.keys, args)
	x.slot = k.d.slotOf(first(x.keys))
	return x
}
