package routing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// Table is the models of one configuration, ready to be asked.
type Table struct {
	exact   map[string]*entry
	wild    []*entry          // longest prefix first
	aliases map[string]string // global ones, of the model entries
	groups  map[string][]string
	names   []string // exact names, global aliases, and names that lists of the configuration spell out
}

// entry is one model of the configuration.
type entry struct {
	model       *config.Model
	prefix      string // of a wildcard: what stands before "*"
	deployments []*config.Deployment
	uniform     bool // the strategy does not go by weights
}

// New makes the table. The error joins every fault found and names the fields. The table refers to cfg, which must not
// change afterwards.
func New(cfg *config.Config) (*Table, error) {
	t := &Table{
		exact:   make(map[string]*entry, len(cfg.Models)),
		aliases: make(map[string]string),
		groups:  cfg.AccessGroups,
	}
	var errs []error
	for i := range cfg.Models {
		errs = append(errs, t.addModel(i, &cfg.Models[i]))
	}
	for i := range cfg.Models {
		errs = append(errs, t.addAliases(&cfg.Models[i]))
	}
	for name := range cfg.AccessGroups {
		if t.taken(name) {
			errs = append(errs, fmt.Errorf("access_groups.%s: is also the name of a model", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	slices.SortFunc(t.wild, func(a, b *entry) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	t.names = t.spelledNames(cfg)
	return t, nil
}

func (t *Table) addModel(i int, m *config.Model) error {
	prefix, wild := strings.CutSuffix(m.Name, "*")
	switch {
	case m.Name == "":
		return fmt.Errorf("models[%d].name: must not be empty", i)
	case strings.Contains(prefix, "*"):
		return fmt.Errorf("models[%d].name: %q may have \"*\" only at its end", i, m.Name)
	case t.taken(m.Name):
		return fmt.Errorf("models[%d].name: %q is used twice", i, m.Name)
	}
	e := &entry{model: m, prefix: prefix, uniform: m.Strategy != "shuffle"}
	for j := range m.Deployments {
		e.deployments = append(e.deployments, &m.Deployments[j])
	}
	slices.SortStableFunc(e.deployments, func(a, b *config.Deployment) int { return cmp.Compare(a.Order, b.Order) })
	if wild {
		t.wild = append(t.wild, e)
	} else {
		t.exact[m.Name] = e
	}
	return nil
}

func (t *Table) addAliases(m *config.Model) error {
	for _, alias := range m.Aliases {
		switch {
		case alias == "" || strings.Contains(alias, "*"):
			return fmt.Errorf("models[%s].aliases: %q must be a plain name", m.Name, alias)
		case strings.HasSuffix(m.Name, "*"):
			return fmt.Errorf("models[%s].aliases: a wildcard cannot have the alias %q", m.Name, alias)
		case t.taken(alias):
			return fmt.Errorf("models[%s].aliases: %q is used twice", m.Name, alias)
		}
		t.aliases[alias] = m.Name
	}
	return nil
}

// taken reports whether a model entry or a global alias has the name.
func (t *Table) taken(name string) bool {
	_, alias := t.aliases[name]
	return alias || t.exact[name] != nil || slices.ContainsFunc(t.wild, func(e *entry) bool { return e.model.Name == name })
}

// find is the entry that serves a name: exact beats wildcard, a longer wildcard a shorter one. The "*" stands for at
// least one character, and for no blank.
func (t *Table) find(name string) *entry {
	if e := t.exact[name]; e != nil {
		return e
	}
	if hasBlank(name) {
		return nil
	}
	for _, e := range t.wild {
		if len(name) > len(e.prefix) && strings.HasPrefix(name, e.prefix) {
			return e
		}
	}
	return nil
}

// hasBlank reports blanks and control characters. Behind a wildcard they would let "openai/o1-pro " pass where
// "openai/o1-pro" is denied, to an upstream that trims names.
func hasBlank(name string) bool {
	for i := 0; i < len(name); i++ {
		if name[i] <= ' ' || name[i] == 0x7f {
			return true
		}
	}
	return false
}

// rest is the part of a name that goes upstream when the deployment names no model: all of it for an exact entry; for
// a wildcard what follows the prefix up to its last slash, so "openai/*" and "openai/gpt-*" both make "gpt-4o" of
// "openai/gpt-4o".
func (e *entry) rest(name string) string {
	if !strings.HasSuffix(e.model.Name, "*") {
		return name
	}
	return name[strings.LastIndexByte(e.prefix, '/')+1:]
}
