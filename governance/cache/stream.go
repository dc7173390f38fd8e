package cache

import (
	"errors"
	"fmt"
)

// Stream makes of a chat completion the stream that the same request with stream would have got: for each choice a
// chunk with the whole message and one with its end, then the usage if the caller asked for it, then [DONE]. Clients
// join deltas of any size. Members that are not known come in the first chunk, those of a choice in its last.
//
// Completion is the inverse. Where streams have no form for a part of the completion, it is an error and the entry a
// miss for streaming callers.
func Stream(completion []byte, includeUsage bool) ([]byte, error) {
	root, err := parseNode(completion)
	if err != nil {
		return nil, fmt.Errorf("chat completion: %w", err)
	}
	if err := checkChat(root); err != nil {
		return nil, fmt.Errorf("chat completion: %w", err)
	}
	s := newStreamer(root, includeUsage, len(completion))
	for i, choice := range root.get("choices").items {
		if err := s.choice(i, choice); err != nil {
			return nil, fmt.Errorf("chat completion: choice %d: %w", i, err)
		}
	}
	if s.usage != nil && !s.usage.isNull() {
		s.chunk(nil, s.usage)
	}
	return append(s.out, "data: [DONE]\n\n"...), nil
}

// streamer writes chunks.
type streamer struct {
	out   []byte
	head  []named // members that every chunk repeats
	extra []named // members of the first chunk alone
	usage *node   // nil: no chunk has the member
}

func newStreamer(root *node, includeUsage bool, size int) *streamer {
	s := &streamer{out: make([]byte, 0, 2*size+512)}
	for _, m := range root.members {
		switch m.name {
		case "object":
			s.head = append(s.head, named{"object", textNode("chat.completion.chunk")})
		case "id", "created", "model", "service_tier", "system_fingerprint":
			s.head = append(s.head, m)
		case "usage":
			if includeUsage {
				s.usage = m.value
			}
		case "choices", "obfuscation":
		default:
			s.extra = append(s.extra, m)
		}
	}
	if root.get("object") == nil {
		s.head = append(s.head, named{"object", textNode("chat.completion.chunk")})
	}
	return s
}

// chunk writes one event. usage is the value of that member, if the stream has it at all.
func (s *streamer) chunk(choice *node, usage *node) {
	members := append(s.head[:len(s.head):len(s.head)], s.extra...)
	s.extra = nil
	choices := &node{kind: '['}
	if choice != nil {
		choices.items = []*node{choice}
	}
	members = append(members, named{"choices", choices})
	if s.usage != nil {
		members = append(members, named{"usage", usage})
	}
	s.out = append(s.out, "data: "...)
	s.out = appendObject(s.out, members)
	s.out = append(s.out, "\n\n"...)
}

// choice writes the two chunks of a choice, which must stand at its index.
func (s *streamer) choice(i int, choice *node) error {
	if at, ok := choice.index(); choice.get("index") != nil && (!ok || at != i) {
		return errors.New("is not at its index")
	}
	delta, err := deltaOf(choice.get("message"))
	if err != nil {
		return err
	}
	begin := &node{kind: '{', members: []named{{"index", intNode(i)}, {"delta", delta}}}
	end := &node{kind: '{', members: []named{{"index", intNode(i)}, {"delta", &node{kind: '{'}}}}
	for _, m := range choice.members {
		switch m.name {
		case "index", "message", "finish_reason":
		case "delta":
			return errors.New("has a delta")
		case "logprobs":
			begin.members = append(begin.members, m)
			end.members = append(end.members, named{"logprobs", null})
		default:
			end.members = append(end.members, m)
		}
	}
	begin.members = append(begin.members, named{"finish_reason", null})
	end.members = append(end.members, named{"finish_reason", choice.get("finish_reason")})
	s.chunk(begin, null)
	s.chunk(end, null)
	return nil
}

// deltaOf is the message as one delta: its tool calls numbered.
func deltaOf(message *node) (*node, error) {
	calls := message.get("tool_calls")
	if calls == nil || calls.kind != '[' {
		return message, nil
	}
	numbered := &node{kind: '['}
	for i, call := range calls.items {
		if call.kind != '{' {
			return nil, errors.New("a tool call is no object")
		}
		at, ok := call.index()
		switch {
		case call.get("index") == nil:
			call = &node{kind: '{', members: append([]named{{"index", intNode(i)}}, call.members...)}
		case !ok || at != i:
			return nil, errors.New("a tool call is not at its index")
		}
		numbered.items = append(numbered.items, call)
	}
	message.set("tool_calls", numbered)
	return message, nil
}
