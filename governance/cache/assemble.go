package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// assembler makes one chat completion of the chunks of its stream. Members keep their order of appearance.
type assembler struct {
	root    *node         // the completion, but for choices
	choices map[int]*node // by index
	done    bool          // [DONE] was seen
	size    int           // bytes held, about

	dec  jsontext.Decoder // of the event at hand
	in   bytes.Buffer     // what dec reads
	seen []rawMember      // the last value of each member but choices
}

// rawMember is a member as it stood in a chunk. Most of them are the same in all chunks, and to take one again is to
// change nothing.
type rawMember struct {
	name  string
	value []byte
}

var (
	errAfterDone  = errors.New("data after [DONE]")
	errIncomplete = errors.New("the stream is incomplete")
)

func newAssembler() *assembler {
	return &assembler{root: &node{kind: '{'}, choices: map[int]*node{}}
}

// event takes the data of one event.
func (a *assembler) event(data []byte) error {
	if a.done {
		return errAfterDone
	}
	if string(data) == "[DONE]" {
		a.done = true
		return nil
	}
	if err := a.chunk(data); err != nil {
		return fmt.Errorf("chunk: %w", err)
	}
	return nil
}

// chunk takes one chunk. It parses only what is new in it.
func (a *assembler) chunk(data []byte) error {
	a.in = *bytes.NewBuffer(data)
	a.dec.Reset(&a.in)
	if a.dec.PeekKind() != '{' {
		return errNoObject
	}
	if _, err := a.dec.ReadToken(); err != nil {
		return err
	}
	for a.dec.PeekKind() != '}' {
		name, err := readName(&a.dec)
		if err != nil {
			return err
		}
		if name == "choices" {
			err = a.readChoices()
		} else {
			err = a.readMember(name)
		}
		if err != nil {
			return err
		}
	}
	if _, err := a.dec.ReadToken(); err != nil {
		return err
	}
	if _, err := a.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}

func (a *assembler) readChoices() error {
	list, err := readNode(&a.dec, 1)
	if err != nil {
		return err
	}
	return a.addChoices(list)
}

func (a *assembler) readMember(name string) error {
	raw, err := a.dec.ReadValue()
	if err != nil {
		return err
	}
	if len(a.seen) > maxMembers {
		return errMembers
	}
	if name == "obfuscation" || a.same(name, raw) {
		return nil // obfuscation is padding against traffic analysis, made anew for each chunk
	}
	value, err := readNode(jsontext.NewDecoder(bytes.NewBuffer(raw)), 1)
	if err != nil {
		return err
	}
	return a.member(name, value)
}

// same reports whether a member is as it was when it last came, and remembers it.
func (a *assembler) same(name string, raw []byte) bool {
	for i := range a.seen {
		if s := &a.seen[i]; s.name == name {
			if bytes.Equal(s.value, raw) {
				return true
			}
			a.size += len(raw) - len(s.value)
			s.value = append(s.value[:0], raw...)
			return false
		}
	}
	a.seen = append(a.seen, rawMember{name, bytes.Clone(raw)})
	a.size += len(name) + len(raw)
	return false
}

func (a *assembler) member(name string, value *node) error {
	switch name {
	case "object":
		a.root.set("object", textNode("chat.completion"))
		return nil
	case "usage":
		a.usage(value)
		return nil
	case "id", "created", "model":
		a.identity(named{name, value})
		return nil
	}
	// Groq reports in x_groq.error.
	if name == "error" && !value.isNull() || !value.get("error").isNull() {
		return errors.New("the stream reports an error")
	}
	return a.add(mergeState(a.root, name, value))
}

func (a *assembler) add(grown int, err error) error {
	a.size += grown
	return err
}

// identity keeps the first value that says something: Azure sends "" and 0 in chunks of annotations alone.
func (a *assembler) identity(m named) {
	have := a.root.get(m.name)
	if have.empty() || have.kind == '0' && string(have.text) == "0" {
		a.root.set(m.name, m.value)
		a.size += m.value.size
	}
}

// usage keeps the last one that is not null: servers that report it in every chunk count up.
func (a *assembler) usage(u *node) {
	if have := a.root.get("usage"); have == nil || !u.isNull() {
		a.root.set("usage", u)
	}
}

func (a *assembler) addChoices(list *node) error {
	if list.kind != '[' {
		return errors.New("choices is no list")
	}
	if a.root.get("choices") == nil {
		a.root.set("choices", &node{kind: '['}) // its place; complete fills it
	}
	for _, piece := range list.items {
		i, ok := piece.index()
		if !ok || i > maxIndex {
			return errors.New("a choice has no index that is one")
		}
		choice := a.choices[i]
		if choice == nil {
			choice = &node{kind: '{', members: []named{{"index", intNode(i)}, {"message", &node{kind: '{'}}}}
			a.choices[i] = choice
			a.size += 64
		}
		if err := a.addChoice(choice, piece); err != nil {
			return fmt.Errorf("choice %d: %w", i, err)
		}
	}
	return nil
}

func (a *assembler) addChoice(choice, piece *node) error {
	for _, m := range piece.members {
		var err error
		switch m.name {
		case "index":
		case "delta":
			if m.value.kind != '{' {
				return errors.New("delta is no object")
			}
			err = a.add(mergeDelta(choice.get("message"), m.value))
		case "message":
			return errors.New("message in a stream")
		case "logprobs":
			err = a.add(mergeLogprobs(choice, m.value))
		case "finish_reason":
			if have := choice.get(m.name); !have.isNull() && !m.value.isNull() && !have.equal(m.value) {
				return errors.New("two finish reasons")
			}
			err = a.add(mergeState(choice, m.name, m.value))
		default:
			err = a.add(mergeState(choice, m.name, m.value))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete is the completion, once the stream has ended.
func (a *assembler) complete() (*node, error) {
	if !a.done {
		return nil, errIncomplete
	}
	list := &node{kind: '['}
	for i := range len(a.choices) {
		choice := a.choices[i]
		if choice == nil {
			return nil, fmt.Errorf("there is no choice %d", i)
		}
		if err := finishMessage(choice.get("message")); err != nil {
			return nil, fmt.Errorf("choice %d: %w", i, err)
		}
		list.items = append(list.items, choice)
	}
	a.root.set("choices", list)
	if a.root.get("object") == nil {
		a.root.set("object", textNode("chat.completion"))
	}
	return a.root, checkChat(a.root)
}

// finishMessage gives a message the form it has outside of streams: a role, and tool calls in order, without index.
func finishMessage(message *node) error {
	if message.get("role").isNull() {
		message.set("role", textNode("assistant"))
	}
	calls := message.get("tool_calls")
	if calls == nil || calls.kind != '[' {
		return nil
	}
	for _, call := range calls.items {
		if _, ok := call.index(); !ok {
			return nil // a server that sends whole calls, in order
		}
	}
	slices.SortStableFunc(calls.items, func(x, y *node) int {
		i, _ := x.index()
		j, _ := y.index()
		return i - j
	})
	for i, call := range calls.items {
		if at, _ := call.index(); at != i {
			return errors.New("the tool calls are not numbered from 0")
		}
		call.members = slices.DeleteFunc(call.members, func(m named) bool { return m.name == "index" })
	}
	return nil
}

// Completion assembles the stream of a chat completion into the JSON that the same request without stream would have
// got: pieces joined, tool calls and choices in order, usage if the stream had it, and all members that are not known
// as they came. An answer that is incomplete, failed or empty, or that cannot be assembled exactly, is an error.
func Completion(sse []byte) ([]byte, error) {
	a := newAssembler()
	e := events{emit: a.event}
	if err := e.write(sse); err != nil {
		return nil, fmt.Errorf("chat stream: %w", err)
	}
	if err := e.close(); err != nil {
		return nil, fmt.Errorf("chat stream: %w", err)
	}
	completion, err := a.complete()
	if err != nil {
		return nil, fmt.Errorf("chat stream: %w", err)
	}
	return completion.append(nil), nil
}
