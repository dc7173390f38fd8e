package cache

import "fmt"

// How the pieces of a streamed message become one value. What is known to be cut into pieces is joined; what must be
// one and the same stays; anything else that comes in more than one piece makes the answer one that cannot be assembled
// exactly, and so is not kept.

// joined reports whether the pieces of a string member are appended to one another.
func joined(name string) bool {
	switch name {
	case "content", "refusal", "reasoning_content", "reasoning",
		"arguments", "input", // of function and custom tool calls
		"transcript",      // of audio; its data is base64 with padding, which cannot be joined
		"text", "summary": // of OpenRouter's reasoning_details
		return true
	}
	return false
}

// repeated reports whether a string member says the same in every piece. Some servers send "" after the first.
func repeated(name string) bool {
	switch name {
	case "role", "id", "type", "name", "format":
		return true
	}
	return false
}

// mergeDelta adds a chunk's delta to the message so far, and returns by how many bytes that grew.
func mergeDelta(message, delta *node) (grown int, err error) {
	for _, m := range delta.members {
		have := message.get(m.name)
		switch {
		case have == nil:
			message.members = append(message.members, m)
			grown += m.value.size + len(m.name)
			continue
		case m.value.isNull():
			continue
		case have.isNull():
			message.set(m.name, m.value)
			grown += m.value.size
			continue
		case have.kind != m.value.kind:
			return grown, fmt.Errorf("%q changes its type", m.name)
		}
		var by int
		switch have.kind {
		case '{':
			by, err = mergeDelta(have, m.value)
		case '[':
			by, err = mergeList(m.name, have, m.value)
		case '"':
			by, err = mergeText(m.name, have, m.value)
		default:
			if !have.equal(m.value) {
				err = fmt.Errorf("%q has two values", m.name)
			}
		}
		if grown += by; err != nil {
			return grown, err
		}
	}
	return grown, nil
}

func mergeText(name string, have, piece *node) (grown int, err error) {
	switch {
	case len(piece.text) == 0:
		return 0, nil
	case len(have.text) == 0 || joined(name):
		have.text = append(have.text, piece.text...)
		return len(piece.text), nil
	case repeated(name) && string(have.text) == string(piece.text):
		return 0, nil
	}
	return 0, fmt.Errorf("%q comes in pieces", name)
}

// mergeList merges the elements that carry an index with those of the same index. Elements without one can only be
// appended where that is what they mean: annotations, or a list that was empty so far.
func mergeList(name string, have, piece *node) (grown int, err error) {
	whole := len(have.items) == 0
	for _, item := range piece.items {
		i, indexed := item.index()
		if i > maxIndex {
			return grown, fmt.Errorf("%q: an index is too large", name)
		}
		var same *node
		if indexed && !whole {
			if same, err = itemAt(have, i); err != nil {
				return grown, fmt.Errorf("%q: %w", name, err)
			}
		}
		switch {
		case same != nil:
			by, err := mergeDelta(same, item)
			if grown += by; err != nil {
				return grown, err
			}
		case indexed || whole || name == "annotations":
			have.items = append(have.items, item)
			grown += item.size
		default:
			return grown, fmt.Errorf("%q comes in pieces", name)
		}
	}
	return grown, nil
}

func itemAt(list *node, index int) (*node, error) {
	var found *node
	for _, item := range list.items {
		if i, ok := item.index(); ok && i == index {
			if found != nil {
				return nil, fmt.Errorf("two elements have the index %d", index)
			}
			found = item
		}
	}
	return found, nil
}

// mergeState takes over a member that describes the state of the answer or of a choice, where a later value replaces
// an earlier one. Objects are replaced member by member: Azure's filters report one category a chunk.
func mergeState(object *node, name string, value *node) (grown int, err error) {
	have := object.get(name)
	switch {
	case have == nil:
		object.set(name, value)
		return value.size + len(name), nil
	case value.isNull():
		return 0, nil
	case have.isNull():
		object.set(name, value)
		return value.size, nil
	case value.empty() || have.equal(value):
		return 0, nil
	case have.kind == '{' && value.kind == '{':
		for _, m := range value.members {
			by, err := mergeState(have, m.name, m.value)
			if grown += by; err != nil {
				return grown, err
			}
		}
		return grown, nil
	case have.kind == '[' && len(have.items) > 0:
		return 0, fmt.Errorf("%q comes in pieces", name)
	}
	object.set(name, value)
	return value.size, nil
}

// mergeLogprobs appends the lists that a chunk's logprobs hold.
func mergeLogprobs(choice, piece *node) (grown int, err error) {
	have := choice.get("logprobs")
	if have.isNull() || piece.isNull() {
		return mergeState(choice, "logprobs", piece)
	}
	if have.kind != '{' || piece.kind != '{' {
		return 0, fmt.Errorf("%q changes its type", "logprobs")
	}
	for _, m := range piece.members {
		list := have.get(m.name)
		switch {
		case list == nil || list.isNull():
			have.set(m.name, m.value)
		case m.value.isNull():
			continue
		case list.kind != '[' || m.value.kind != '[':
			return grown, fmt.Errorf("%q changes its type", "logprobs."+m.name)
		default:
			list.items = append(list.items, m.value.items...)
		}
		grown += m.value.size
	}
	return grown, nil
}
