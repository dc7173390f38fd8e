package price

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// nano is how many nano-dollars a dollar has.
const nano = 1_000_000_000

// parseTable reads the embedded facts. prices has the columns provider, model, service tier, threshold and then US
// dollars per million tokens in the order of a sheet; models has provider, model, most output tokens and "1" when the
// threshold itself belongs to the step above. "" is "not given"; lines that begin with # are comments.
func parseTable(prices, models string) (*Table, error) {
	t := &Table{
		builtin:   make(map[key]*entry, strings.Count(models, "\n")),
		maxOutput: make(map[key]int64, strings.Count(models, "\n")),
		providers: make(map[string]bool),
	}
	if err := eachLine(prices, 4+kinds, t.addPrice); err != nil {
		return nil, fmt.Errorf("prices.csv: %w", err)
	}
	if err := eachLine(models, 4, t.addModel); err != nil {
		return nil, fmt.Errorf("models.csv: %w", err)
	}
	for _, e := range t.builtin {
		if err := e.complete(); err != nil {
			return nil, fmt.Errorf("prices.csv: %w", err)
		}
	}
	return t, nil
}

// eachLine cuts a table into fields. The slice is used again for the next line.
func eachLine(text string, columns int, f func(fields []string) error) error {
	fields := make([]string, columns)
	for number := 1; text != ""; number++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if got := strings.Count(line, ",") + 1; got != columns {
			return fmt.Errorf("line %d has %d columns, not %d", number, got, columns)
		}
		for i := range fields {
			fields[i], line, _ = strings.Cut(line, ",")
		}
		if err := f(fields); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil
}

func (t *Table) addPrice(fields []string) error {
	id := key{fields[0], fields[1]}
	over, err := strconv.ParseInt(fields[3], 10, 64)
	if err != nil || over < 0 {
		return fmt.Errorf("threshold %q is no number of tokens", fields[3])
	}
	s := step{over: over}
	for kind, text := range fields[4:] {
		if s.sheet[kind], err = parsePrice(text); err != nil {
			return err
		}
	}
	e := t.builtin[id]
	if e == nil {
		e = &entry{name: "builtin:" + id.provider + "/" + id.model}
		t.builtin[id] = e
		t.providers[id.provider] = true
	}
	return e.addStep(fields[2], s)
}

func (e *entry) addStep(service string, s step) error {
	for i := range e.tiers {
		t := &e.tiers[i]
		if t.name != service {
			continue
		}
		for _, other := range t.steps {
			if other.over == s.over {
				return fmt.Errorf("a second %s price over %d tokens", service, s.over)
			}
		}
		t.steps = append(t.steps, s)
		return nil
	}
	e.tiers = append(e.tiers, tier{name: service, steps: schedule{s}})
	return nil
}

func (t *Table) addModel(fields []string) error {
	id := key{fields[0], fields[1]}
	e := t.builtin[id]
	if e == nil {
		return fmt.Errorf("%s/%s has no price", id.provider, id.model)
	}
	if fields[2] != "" {
		most, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || most <= 0 {
			return fmt.Errorf("maximum %q is no number of tokens", fields[2])
		}
		t.maxOutput[id] = most
	}
	if fields[3] == "1" {
		for _, tier := range e.tiers {
			for i := range tier.steps {
				tier.steps[i].inclusive = true
			}
		}
	}
	return nil
}

// parsePrice turns dollars into nano-dollars exactly; "" is missing.
func parsePrice(text string) (int64, error) {
	if text == "" {
		return missing, nil
	}
	whole, fraction, _ := strings.Cut(text, ".")
	const digits = 9
	if len(fraction) > digits {
		return 0, fmt.Errorf("price %q has more than %d decimals", text, digits)
	}
	dollars, err := strconv.ParseUint(whole, 10, 63)
	if err == nil && dollars > MaxNano/nano {
		err = errors.New("too much")
	}
	if err != nil {
		return 0, fmt.Errorf("price %q is no amount of dollars: %w", text, err)
	}
	var rest uint64
	if fraction != "" {
		if rest, err = strconv.ParseUint(fraction+"000000000"[len(fraction):], 10, 63); err != nil {
			return 0, fmt.Errorf("price %q is no amount of dollars: %w", text, err)
		}
	}
	return int64(dollars*nano + rest), nil
}
