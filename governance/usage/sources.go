package usage

import "strings"

// maxEndUser bounds an end user's id in bytes: it becomes part of Redis keys and of every spend record.
const maxEndUser = 256

// Sources says where a request names its end user.
type Sources struct {
	// EndUser lists the sources in the order they are asked; the first that has a value wins. A name that begins with
	// "x-" is a request header, any other a dotted path in the body.
	EndUser []string
	// Header returns a request header by its lower-case name, "" when it is absent. Nil: no header is asked.
	Header func(name string) string
}

// isHeader reports whether a source is a request header.
func isHeader(source string) bool { return len(source) > 2 && strings.EqualFold(source[:2], "x-") }

// endUser gathers the end user while the body's members pass by in the client's order.
type endUser struct {
	sources *Sources
	value   string
	rank    int // the index of the source that value came from; len(sources.EndUser) when there is none yet
}

// offer shows one top-level member.
func (u *endUser) offer(name, value []byte) error {
	for rank, source := range u.sources.EndUser[:u.rank] {
		top, path, _ := strings.Cut(source, ".")
		if top != string(name) || isHeader(source) {
			continue
		}
		id, err := endUserID(source, lookup(value, path))
		if err != nil {
			return err
		}
		if id != "" {
			u.value, u.rank = id, rank
			return nil
		}
	}
	return nil
}

// result looks at the headers that go before the body's source.
func (u *endUser) result() (string, error) {
	for _, source := range u.sources.EndUser[:u.rank] {
		if !isHeader(source) || u.sources.Header == nil {
			continue
		}
		if id := u.sources.Header(strings.ToLower(source)); id != "" {
			return boundedUser(source, id)
		}
	}
	return u.value, nil
}

// lookup follows a dotted path below a value; nil when it leads nowhere.
func lookup(value []byte, path string) []byte {
	for path != "" && value != nil {
		var name string
		name, path, _ = strings.Cut(path, ".")
		value = member(value, name)
	}
	return value
}

// endUserID reads the id a source holds; null, the empty string and absence are no id.
func endUserID(source string, value []byte) (string, error) {
	if isNull(value) {
		return "", nil
	}
	switch c := value[0]; {
	case c == '"':
		return boundedUser(source, string(unescape(value)))
	case c == '-' || '0' <= c && c <= '9':
		return boundedUser(source, string(value))
	default:
		return "", malformed(source, "%s must be a string", source)
	}
}

// boundedUser is an id as the limits know it.
func boundedUser(source, id string) (string, error) {
	id = TrimSession(id)
	if len(id) > maxEndUser {
		return "", malformed(source, "%s is longer than %d bytes", source, maxEndUser)
	}
	return id, nil
}

// TrimSession drops the session that coding agents append to the user ("user_1_session_8f2"): limits are the user's.
func TrimSession(id string) string {
	if at := strings.LastIndex(id, "_session_"); at > 0 {
		return id[:at]
	}
	return id
}
