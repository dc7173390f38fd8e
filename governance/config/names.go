package config

import (
	"slices"
	"strings"
)

// names are the words that lists of models can use. They are gathered when all files are read.
type names struct {
	models    map[string]bool // exact public names
	wildcards []string        // public names that end in '*', without it
	aliases   map[string]string
	groups    map[string]bool
	all       []string // for hints, in the order of the file
}

// gatherNames collects the names of models, aliases and groups, and reports names that mean two things.
func (d *decoder) gatherNames() {
	d.names = names{models: map[string]bool{}, aliases: map[string]string{}, groups: map[string]bool{}}
	for _, m := range d.cfg.Models {
		if prefix, wildcard := strings.CutSuffix(m.Name, "*"); wildcard {
			d.names.wildcards = append(d.names.wildcards, prefix)
		} else {
			d.names.models[m.Name] = true
		}
		d.names.all = append(append(d.names.all, m.Name), m.Aliases...)
		for _, alias := range m.Aliases {
			d.names.aliases[alias] = m.Name
		}
	}
	for group := range d.cfg.AccessGroups {
		d.names.groups[group] = true
		at := d.seen["access group"][group]
		switch model, isAlias := d.names.aliases[group]; {
		case d.names.models[group]:
			d.fail(at, "is the name of a model too; one of the two must be renamed")
		case isAlias:
			d.fail(at, "is an alias of model %q too; one of the two must be renamed", model)
		}
	}
	d.names.all = append(d.names.all, d.ids("access group")...)
}

// served reports whether some deployment can serve the name: a model, or what a wildcard model covers.
func (n *names) served(name string) bool {
	return n.models[name] || slices.ContainsFunc(n.wildcards, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// matches reports whether a pattern without its '*' can match anything served.
func (n *names) matches(prefix string) bool {
	if prefix == "" || n.served(prefix) {
		return true
	}
	for name := range n.models {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.ContainsFunc(n.wildcards, func(w string) bool { return strings.HasPrefix(w, prefix) })
}

// nameUse says which words a list takes beside exact model names and global aliases.
type nameUse struct {
	pattern bool // names that end in '*'
	group   bool
	deny    bool // a leading '!'
	noAlias bool // counted after aliases are resolved, so an alias would never match
}

// The lists that hold names.
var (
	inAccess   = nameUse{pattern: true, group: true, deny: true}
	inGroup    = nameUse{pattern: true}
	inFallback = nameUse{}
	inPerModel = nameUse{pattern: true, noAlias: true}
)

// checkName reports a name that stands for nothing.
func (d *decoder) checkName(at *node, name string, use nameUse) {
	if use.deny {
		name = strings.TrimPrefix(name, "!")
	}
	prefix, pattern := strings.CutSuffix(name, "*")
	model, alias := d.names.aliases[name]
	switch {
	case pattern && !use.pattern:
		d.fail(at, "must be one model, without '*'")
	case pattern && d.names.matches(prefix):
	case pattern:
		d.fail(at, "%s matches no model%s", at.quoted(), didYouMean(name, d.names.all))
	case alias && use.noAlias:
		d.fail(at, "is an alias; limits count the model it stands for, %q", model)
	case alias || d.names.served(name):
	case d.names.groups[name] && use.group:
	case d.names.groups[name]:
		d.fail(at, "%s is an access group; models are needed here", at.quoted())
	default:
		d.fail(at, "%s is no model, alias or access group%s", at.quoted(), didYouMean(name, d.names.all))
	}
}

// listRule is the syntax of an entry of a list of models.
func (u nameUse) listRule(s string) string {
	if u.deny {
		s = strings.TrimPrefix(s, "!")
	}
	return modelNameRule(s)
}

// modelList reads a list of names; their meaning is checked when all files are read.
func (s *section) modelList(name string, use nameUse) []string {
	return s.eachText(name, use.listRule, func(item *node, text string) {
		s.d.later = append(s.d.later, func() { s.d.checkName(item, text, use) })
	})
}
