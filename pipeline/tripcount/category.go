package tripcount

import "strings"

// category says what a command is for.
type category int

const (
	// setup prepares a connection and belongs to no request.
	setup category = iota
	// topology asks where things are: a client does so when it starts and when it was sent elsewhere, beside its requests.
	topology
	// work is everything else: what a request may wait for.
	work
)

// categorize names the category of a command.
func categorize(cmd []string) category {
	name, sub := words(cmd)
	switch name {
	case "", "HELLO", "AUTH", "SELECT", "READONLY", "READWRITE", "ASKING", "QUIT", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		return setup
	case "CLIENT":
		switch sub {
		case "SETINFO", "SETNAME", "MAINT_NOTIFICATIONS", "ID":
			return setup
		}
	case "CLUSTER", "COMMAND", "SENTINEL", "ROLE":
		return topology
	}
	if streaming(cmd) {
		return setup
	}
	return work
}

// streaming says whether a command turns its connection into one that carries messages instead of replies.
func streaming(cmd []string) bool {
	switch name, _ := words(cmd); name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR":
		return true
	}
	return upkeep(cmd)
}

// upkeep says whether a command shows that its connection is between servers: a replica's to its master, which begins
// with PING and REPLCONF, or a Sentinel's to what it watches, which is named sentinel-... and pings without end.
func upkeep(cmd []string) bool {
	switch name, sub := words(cmd); name {
	case "REPLCONF", "PSYNC", "SYNC":
		return true
	case "CLIENT":
		return sub == "SETNAME" && len(cmd) > 2 && strings.HasPrefix(cmd[2], "sentinel-")
	}
	return false
}

// words are the command's name and its first argument in capitals, "" for what it lacks.
func words(cmd []string) (name, sub string) {
	if len(cmd) > 0 {
		name = strings.ToUpper(cmd[0])
	}
	if len(cmd) > 1 {
		sub = strings.ToUpper(cmd[1])
	}
	return name, sub
}
