package config

import (
	"slices"
	"strings"
)

// unbuilt is one key that the contract has and this version does not act on.
type unbuilt struct {
	// key is a dotted path; [] stands for any index, * for any name.
	key string
	// except are values that this version acts on, the default among them.
	except []string
	// only, when set, are the values that this version does not act on.
	only []string
}

// notYet is all that a file can say and this version does not do yet. A row goes when its feature is built.
var notYet = []unbuilt{
	// the process
	{key: "tls"},
	{key: "postgres"},
	{key: "ledger.retention", except: []string{"400d"}},
	{key: "admin.tokens"},
	{key: "alerts.webhooks"},
	{key: "price_map"},

	// callers
	{key: "auth.mode", except: []string{"required"}},
	{key: "auth.jwt"},
	{key: "identity.tags"},
	{key: "routing", except: []string{"tollgate"}},
	{key: "endpoints.realtime", except: []string{"false"}},
	{key: "endpoints.pass"},
	{key: "cache.merge_misses", except: []string{"false"}},

	// shared scopes and models
	{key: "limits"},
	{key: "providers.*.limits"},
	{key: "models[].strategy", except: []string{"usage", "shuffle"}},
	{key: "models[].fallbacks"},
	{key: "models[].limits"},
	{key: "models[].deployments[].dialect", except: []string{"openai"}},
	{key: "models[].deployments[].credential", only: []string{"client"}},
	{key: "models[].deployments[].region"},
	{key: "models[].deployments[].limits.budgets"},
	{key: "models[].deployments[].limits.max_request"},
	{key: "models[].deployments[].limits.per_model"},

	// identities
	{key: "defaults.end_user"},
	{key: "defaults.key"},
	{key: "defaults.user"},
	{key: "defaults.team_member"},
	{key: "orgs[].limits"},
	{key: "orgs[].timezone"},
	{key: "orgs[].regions"},
	{key: "teams[].allow_tags"},
	{key: "teams[].regions"},
	{key: "teams[].on_exhausted"},
	{key: "teams[].blocked", except: []string{"false"}},
	{key: "teams[].limits.per_model"},
	{key: "teams[].limits.budgets[].alert"},
	{key: "teams[].limits.budgets[].raises"},
	{key: "users[].limits"},
	{key: "users[].timezone"},
	{key: "projects[].limits"},
	{key: "projects[].timezone"},
	{key: "team_members[].limits"},
	{key: "team_members[].timezone"},
	{key: "end_users[].limits"},
	{key: "end_users[].timezone"},
	{key: "tags[].limits"},
	{key: "tags[].timezone"},
	{key: "keys[].user"},
	{key: "keys[].project"},
	{key: "keys[].regions"},
	{key: "keys[].limits.per_model"},
	{key: "keys[].limits.budgets[].alert"},
	{key: "keys[].limits.budgets[].raises"},
}

// pending lists the keys of a file that are set and not acted on yet. The file is read before, so that URLs taken from
// variables and files stand in the tree.
func pending(root *node) []Finding {
	rows := make([]pendingRow, len(notYet))
	for i, u := range notYet {
		rows[i] = pendingRow{unbuilt: u, rest: strings.Split(strings.ReplaceAll(u.key, "[]", ".[]"), ".")}
	}
	return pendingIn(root, rows, nil)
}

// pendingRow is a row of the table on the way down the tree: rest are the segments of its key below the node at hand.
type pendingRow struct {
	unbuilt
	rest []string
}

func pendingIn(n *node, rows []pendingRow, found []Finding) []Finding {
	for _, r := range rows {
		if len(r.rest) == 0 {
			if r.applies(n) {
				found = append(found, n.finding("is accepted and not acted on by this version"))
			}
			return found
		}
	}
	for _, e := range n.entries {
		if below := descend(rows, e.name, "*"); len(below) > 0 {
			found = pendingIn(e.value, below, found)
		}
	}
	if below := descend(rows, "[]", "[]"); len(below) > 0 {
		for _, item := range n.items {
			found = pendingIn(item, below, found)
		}
	}
	return found
}

// descend are the rows whose next segment is the name or the wildcard, without it.
func descend(rows []pendingRow, name, wildcard string) []pendingRow {
	var below []pendingRow
	for _, r := range rows {
		if len(r.rest) > 0 && (r.rest[0] == name || r.rest[0] == wildcard) {
			below = append(below, pendingRow{r.unbuilt, r.rest[1:]})
		}
	}
	return below
}

// applies reports whether the value is set to something this version does not do. Empty lists and mappings set nothing,
// and a value that a variable failed to give is reported as missing.
func (u unbuilt) applies(n *node) bool {
	switch {
	case n.kind == nullNode, n.kind == listNode && len(n.items) == 0, n.kind == mappingNode && len(n.entries) == 0:
		return false
	case u.only != nil:
		return n.kind == scalarNode && !n.expanded && slices.Contains(u.only, n.text)
	case u.except != nil:
		return !n.void && (n.kind != scalarNode || !slices.Contains(u.except, n.text))
	}
	return true
}
