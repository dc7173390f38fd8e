package routing

import (
	"slices"
	"strings"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/refusal"
)

// Target is the model that a request means, and who asks for it.
type Target struct {
	Model  *config.Model
	Asked  string // the name in the request
	Name   string // after aliases
	Rest   string // the name for an upstream whose deployment does not name a model
	Access Access

	entry *entry
}

// maxName is the longest model name that is looked at, in bytes. Providers' own stay below 2,048 (Bedrock's ARNs).
const maxName = 2048

// Resolve finds the model that a caller means by a name: the first alias of org, team, key and models, once; then
// whether the caller may use the result; then the entry that serves it.
func (t *Table) Resolve(k Access, name string) (Target, *refusal.Refusal) {
	if name == "" {
		return Target{}, &refusal.Refusal{Reason: refusal.Malformed, Param: "model", Message: "the request names no model"}
	}
	if len(name) > maxName {
		return Target{}, unknownModel(name)
	}
	resolved := t.unalias(k, name)
	if l, denied := t.denier(k, resolved); denied {
		return Target{}, &refusal.Refusal{
			Reason: refusal.ModelDenied, Param: "model", ScopeKind: l.kind, ScopeID: l.id,
			Message: "the " + l.kind + " " + refusal.Quote(l.id) + " may not use the model " + spelled(name, resolved),
		}
	}
	e := t.find(resolved)
	if e == nil {
		return Target{}, unknownModel(name)
	}
	return target(k, name, resolved, e), nil
}

func target(k Access, asked, name string, e *entry) Target {
	return Target{Model: e.model, Asked: asked, Name: name, Rest: e.rest(name), Access: k, entry: e}
}

// Alternatives appends those of names that the caller of tgt may use, in their order: the models that may be tried when
// no deployment of tgt can serve (tgt.Model.Fallbacks) or its budget is spent (a team's on_exhausted). Aliases and the
// alternatives' own fallbacks are not followed.
func (t *Table) Alternatives(dst []Target, tgt Target, names []string) []Target {
	for _, name := range names {
		if _, denied := t.denier(tgt.Access, name); denied {
			continue
		}
		if e := t.find(name); e != nil && name != tgt.Name {
			dst = append(dst, target(tgt.Access, tgt.Asked, name, e))
		}
	}
	return dst
}

// Visible are the names that a caller can put in "model", sorted: models, aliases, and the names that the
// configuration or the caller's own lists spell out and a wildcard serves. A wildcard itself is not listed: clients
// offer each id as it stands, and "openai/*" is no model.
func (t *Table) Visible(k Access) []string {
	visible := make([]string, 0, len(t.names))
	add := func(name string) {
		if strings.HasSuffix(name, "*") || strings.HasPrefix(name, "!") {
			return
		}
		resolved := t.unalias(k, name)
		if _, denied := t.denier(k, resolved); !denied && t.find(resolved) != nil {
			visible = append(visible, name)
		}
	}
	for _, name := range t.names {
		add(name)
	}
	for _, l := range k.levels() {
		if l.access == nil {
			continue
		}
		for alias := range l.access.Aliases {
			add(alias)
		}
		for _, name := range l.access.Models {
			if t.groups[name] == nil {
				add(name)
			}
		}
	}
	slices.Sort(visible)
	return slices.Compact(visible)
}

// spelledNames are the names that the configuration spells out for everybody. Lists and aliases of orgs, teams and
// keys are left out: they are for their own callers.
func (t *Table) spelledNames(cfg *config.Config) []string {
	var names []string
	for i := range cfg.Models {
		names = append(names, cfg.Models[i].Name)
		names = append(names, cfg.Models[i].Aliases...)
		names = append(names, cfg.Models[i].Fallbacks...)
	}
	for _, members := range cfg.AccessGroups {
		names = append(names, members...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// unalias replaces a name by what the first of org, team, key and models says it stands for.
func (t *Table) unalias(k Access, name string) string {
	for _, l := range k.levels() {
		if l.access != nil {
			if to, ok := l.access.Aliases[name]; ok {
				return to
			}
		}
	}
	if to, ok := t.aliases[name]; ok {
		return to
	}
	return name
}

func unknownModel(name string) *refusal.Refusal {
	return &refusal.Refusal{Reason: refusal.UnknownModel, Param: "model", Message: "the model " + refusal.Quote(name) + " does not exist"}
}

// spelled names a model as it was asked for and, when that was an alias, what it stands for.
func spelled(asked, name string) string {
	if asked == name {
		return refusal.Quote(name)
	}
	return refusal.Quote(name) + ", for which " + refusal.Quote(asked) + " stands"
}
