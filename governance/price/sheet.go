package price

import (
	"fmt"
	"slices"
	"strings"
)

// The prices of a sheet, in the order of the columns of prices.csv.
const (
	input = iota
	output
	cacheRead
	cacheWrite
	cacheWrite1h
	cacheWrite12h
	reasoning
	kinds
)

// missing stands for a price that is not given. Zero is a price.
const missing = -1

// sheet is one price for each kind of token, in nano-dollars per million.
type sheet [kinds]int64

var empty = sheet{missing, missing, missing, missing, missing, missing, missing}

// step is the sheet for requests of more than some input tokens. All tokens of the request move to it.
type step struct {
	over      int64 // counts all input tokens, cached ones included
	inclusive bool  // a request of exactly that many moves too
	sheet     sheet
}

// schedule is the steps of one service tier, by ascending threshold; the first holds from 0 on.
type schedule []step

// at is the sheet for a request of that many input tokens: the highest step crossed.
func (s schedule) at(tokens int64) *sheet {
	i := len(s) - 1
	for ; i > 0; i-- {
		if tokens > s[i].over || s[i].inclusive && tokens == s[i].over {
			break
		}
	}
	return &s[i].sheet
}

// upTo is the sheet of the highest step whose threshold is not above over.
func (s schedule) upTo(over int64) sheet {
	i := len(s) - 1
	for i > 0 && s[i].over > over {
		i--
	}
	return s[i].sheet
}

// standard is the service tier that everything else falls back to.
const standard = "standard"

// tier is one service tier of a model.
type tier struct {
	name  string
	steps schedule
}

// entry is all prices of one model. It is never changed once it is in a Table.
type entry struct {
	name  string // where the prices come from and whose they are
	tiers []tier // standard first
}

// complete fills in what the source left out. A step inherits from the one below. A service tier falls back to the
// standard one, and where both its own lower step and the standard step have a price, to the dearer. After that, cache
// tokens without a price cost what input does, long-lived cache writes what short-lived ones do, reasoning what
// output does.
func (e *entry) complete() error {
	first := slices.IndexFunc(e.tiers, func(t tier) bool { return t.name == standard })
	if first < 0 {
		return fmt.Errorf("%s has no %s price", e.name, standard)
	}
	e.tiers[0], e.tiers[first] = e.tiers[first], e.tiers[0]
	base := &e.tiers[0]
	if err := base.inherit(e.name); err != nil {
		return err
	}
	for i := range e.tiers[1:] {
		t := &e.tiers[i+1]
		t.fallBack(base.steps)
	}
	for _, t := range e.tiers {
		for i := range t.steps {
			t.steps[i].sheet.fill()
		}
	}
	return nil
}

// inherit completes the steps of the standard tier from below.
func (t *tier) inherit(name string) error {
	t.sort()
	if t.steps[0].over != 0 || t.steps[0].sheet[input] == missing {
		return fmt.Errorf("%s has no price for input from the first token on", name)
	}
	for i := 1; i < len(t.steps); i++ {
		t.steps[i].sheet.inherit(&t.steps[i-1].sheet)
	}
	return nil
}

// fallBack completes the steps of another tier, and adds those that only the standard tier has.
func (t *tier) fallBack(base schedule) {
	for _, b := range base {
		if !slices.ContainsFunc(t.steps, func(s step) bool { return s.over == b.over }) {
			t.steps = append(t.steps, step{over: b.over, inclusive: b.inclusive, sheet: empty})
		}
	}
	t.sort()
	for i := range t.steps {
		from := base.upTo(t.steps[i].over)
		if i > 0 {
			for kind, price := range t.steps[i-1].sheet {
				from[kind] = max(from[kind], price)
			}
		}
		t.steps[i].sheet.inherit(&from)
	}
}

func (t *tier) sort() {
	slices.SortFunc(t.steps, func(a, b step) int { return int(min(max(a.over-b.over, -1), 1)) })
}

// inherit takes over the prices that are missing.
func (s *sheet) inherit(from *sheet) {
	for kind, price := range s {
		if price == missing {
			s[kind] = from[kind]
		}
	}
}

// fill derives the prices that nobody gave.
func (s *sheet) fill() {
	if s[output] == missing {
		s[output] = 0 // an embedding has none
	}
	for _, d := range [...]struct{ kind, from int }{
		{cacheRead, input}, {cacheWrite, input}, {cacheWrite1h, cacheWrite}, {cacheWrite12h, cacheWrite}, {reasoning, output},
	} {
		if s[d.kind] == missing {
			s[d.kind] = s[d.from]
		}
	}
}

// tierName brings the names under which requests and answers speak of service tiers to those of the table.
func tierName(service string) string {
	if service = strings.ToLower(service); service == "fast" {
		return "priority"
	}
	return service
}
