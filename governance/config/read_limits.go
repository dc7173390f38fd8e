package config

import (
	"slices"
	"time"
)

// limits reads the limits of a scope.
func (d *decoder) limits(n *node, into *Limits) {
	s := d.section(n)
	d.rates(s, into)
	if at := s.get("max_request"); at != nil {
		into.MaxRequest = d.maxRequest(at)
	}
	for _, e := range s.pairs("per_model") {
		at := &node{kind: scalarNode, file: n.file, line: e.line, key: e.value.key, text: e.name}
		if wrong := modelNameRule(e.name); wrong != "" {
			d.fail(at, "%s", wrong)
			continue
		}
		d.later = append(d.later, func() { d.checkName(at, e.name, inPerModel) })
		var one Limits
		inner := d.section(e.value)
		d.rates(inner, &one)
		inner.done()
		if into.PerModel == nil {
			into.PerModel = make(map[string]Limits)
		}
		into.PerModel[e.name] = one
	}
	s.done()
}

// rates reads the limits that count over time: those of a whole scope and those of one model in it.
func (d *decoder) rates(s *section, into *Limits) {
	for _, item := range s.items("budgets") {
		if b, ok := d.budget(item); ok {
			d.addBudget(into, b, item)
		}
	}
	s.rate("rpm", &into.RPM)
	s.rate("tpm", &into.TPM)
	s.rate("parallel", &into.Parallel)
	oneOf(s, "tpm_counts", &into.TPMCounts, CountTotal, CountUncached, CountInput, CountOutput)
	if into.TPM != nil && into.TPMCounts == "" {
		into.TPMCounts = CountTotal
	}
}

// addBudget refuses a second budget of the same unit and period: the smaller alone would ever refuse, and the file
// would promise two amounts. A soft one beside a hard one is how an early alert is made.
func (d *decoder) addBudget(into *Limits, b Budget, at *node) {
	if slices.ContainsFunc(into.Budgets, func(o Budget) bool { return o.Unit == b.Unit && o.Per == b.Per && o.Soft == b.Soft }) {
		d.fail(at, "a second budget in %s per %s", b.Unit, b.Per)
		return
	}
	into.Budgets = append(into.Budgets, b)
}

// rate reads a limit: a number, or {limit, enforce}.
func (s *section) rate(name string, into **Rate) {
	n := s.get(name)
	if n == nil {
		return
	}
	if n.kind != mappingNode {
		if limit, ok := convert(s.d, n, parseCount); ok {
			*into = &Rate{Limit: limit}
		}
		return
	}
	inner := s.d.section(n)
	r := Rate{}
	if inner.require("limit") != nil {
		inner.count("limit", &r.Limit, 0, maxCount)
	}
	inner.enforce(&r.Enforce)
	inner.done()
	*into = &r
}

func (s *section) enforce(into *Enforce) { oneOf(s, "enforce", into, Block, Audit, Off) }

// periods are the values of `per`.
var periods = []Period{Minute, Hour, Day, Week, Month, Days30, Lifetime}

// budget reads one budget. ok is false when it lacks an amount or a period.
func (d *decoder) budget(n *node) (b Budget, ok bool) {
	s := d.section(n)
	ok = d.amount(s, &b.Unit, &b.Amount)
	if per := s.require("per"); per != nil {
		var valid bool
		b.Per, valid = choice(d, per, periods)
		ok = ok && valid
	} else {
		ok = false
	}
	s.enforce(&b.Enforce)
	s.boolean("soft", &b.Soft)
	for _, item := range s.items("alert") {
		if percent, valid := convert(d, item, parsePercent); valid {
			b.Alert = append(b.Alert, percent)
		}
	}
	slices.Sort(b.Alert)
	b.Alert = slices.Compact(b.Alert)
	for _, item := range s.items("raises") {
		if r, valid := d.raise(item, b.Unit); valid {
			b.Raises = append(b.Raises, r)
		}
	}
	s.done()
	return b, ok
}

// amount reads the one of usd, tokens and requests that the section has.
func (d *decoder) amount(s *section, unit *Unit, amount *int64) bool {
	var given []*node
	for _, u := range []Unit{USD, Tokens, Requests} {
		if n := s.get(string(u)); n != nil {
			given = append(given, n)
			*unit = u
		}
	}
	if len(given) != 1 {
		d.fail(s.n, "needs exactly one of usd, tokens and requests")
		return false
	}
	parse := parseCount
	if *unit == USD {
		parse = parseMoney
	}
	v, ok := convert(d, given[0], parse)
	*amount = v
	return ok
}

// raise reads one raise of a budget, which counts in the budget's own unit.
func (d *decoder) raise(n *node, unit Unit) (r Raise, ok bool) {
	s := d.section(n)
	var own Unit
	ok = d.amount(s, &own, &r.Amount)
	if ok && unit != "" && own != unit {
		d.fail(n, "must be in %s, as its budget is", unit)
		ok = false
	}
	if until := s.require("until"); until != nil {
		var valid bool
		r.Until, valid = convert(d, until, parseTime)
		ok = ok && valid
	} else {
		ok = false
	}
	s.text("note", &r.Note, textRule)
	s.done()
	return r, ok
}

func (d *decoder) maxRequest(n *node) *MaxRequest {
	s := d.section(n)
	m := &MaxRequest{}
	s.money("usd", &m.USD)
	s.tokens("input_tokens", &m.InputTokens)
	s.tokens("output_tokens", &m.OutputTokens)
	if n.kind == mappingNode && len(n.entries) == 0 {
		d.fail(n, "needs at least one of usd, input_tokens and output_tokens")
	}
	s.done()
	return m
}

func (s *section) tokens(name string, into **int64) {
	if n := s.get(name); n != nil {
		if v, ok := convert(s.d, n, parseCount); ok {
			*into = &v
		}
	}
}

// scope reads what every scope can carry beside its id.
func (d *decoder) scope(s *section, into *Scope) {
	if n := s.get("limits"); n != nil {
		d.limits(n, &into.Limits)
	}
	s.enforce(&into.Enforce)
	s.zone(&into.Timezone)
}

// zone stores the key timezone.
func (s *section) zone(into **time.Location) {
	n := s.get("timezone")
	if n == nil {
		return
	}
	name, ok := s.d.plain(n)
	if !ok {
		return
	}
	at, wrong := zone(name)
	if wrong != "" {
		s.d.fail(n, "%s", wrong)
		return
	}
	*into = at
}

// access reads what orgs, teams and keys say about models.
func (d *decoder) access(s *section, into *Access) {
	into.Models = s.modelList("models", inAccess)
	into.Endpoints = s.texts("endpoints", endpointRule)
	into.Regions = s.texts("regions", idRule)
	for _, e := range s.pairs("aliases") {
		at := e.value
		if wrong := exactModelRule(e.name); wrong != "" {
			d.fail(at, "the alias %s", wrong)
			continue
		}
		model, ok := d.ruled(at, exactModelRule)
		if !ok {
			continue
		}
		if model == e.name {
			d.fail(at, "stands for itself")
			continue
		}
		d.later = append(d.later, func() { d.checkName(at, model, inFallback) })
		if into.Aliases == nil {
			into.Aliases = make(map[string]string)
		}
		into.Aliases[e.name] = model
	}
}
