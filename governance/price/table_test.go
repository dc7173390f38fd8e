package price

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

func builtinTable(t testing.TB) *Table {
	t.Helper()
	table, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// sheetOf is what a row costs for a number of input tokens.
func sheetOf(t *testing.T, table *Table, provider, model, service string, tokens int64) sheet {
	t.Helper()
	row, ok := table.Find(provider, model)
	if !ok {
		t.Fatalf("%s/%s has no price", provider, model)
	}
	return *row.ForTier(service).schedule().at(tokens)
}

func TestBuiltin(t *testing.T) {
	t.Parallel()
	table := builtinTable(t)
	for _, tt := range []struct {
		name, provider, model, service string
		tokens                         int64
		want                           sheet // nano-dollars per thousand tokens
	}{
		{"standard", "openai", "gpt-4o-mini", "", 1, sheet{150, 600, 75, 150, 150, 150, 600}},
		{"priority", "openai", "gpt-4o-mini", "priority", 1, sheet{250, 1000, 125, 250, 250, 250, 1000}},
		{"fast is priority", "openai", "gpt-4o-mini", "fast", 1, sheet{250, 1000, 125, 250, 250, 250, 1000}},
		{"no such tier", "openai", "gpt-4o-mini", "flex", 1, sheet{150, 600, 75, 150, 150, 150, 600}},
		{"cache writes", "anthropic", "claude-fable-5", "standard", 1, sheet{10_000, 50_000, 1_000, 12_500, 20_000, 12_500, 50_000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			for i := range want {
				want[i] *= million
			}
			if diff := cmp.Diff(want, sheetOf(t, table, tt.provider, tt.model, tt.service, tt.tokens)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := table.MaxOutput("openai", "gpt-4o-mini"); got != 16384 {
		t.Errorf("MaxOutput = %d, want 16384", got)
	}
	if got := table.MaxOutput("openai", "no-such-model"); got != 0 {
		t.Errorf("MaxOutput of an unknown model = %d, want 0", got)
	}
	if _, ok := table.Find("openai", "no-such-model"); ok {
		t.Error("an unknown model has a price")
	}
	if _, ok := table.Find("", "gpt-4o-mini"); ok {
		t.Error("a model of an unknown provider has the price of another's")
	}
}

// Every row of the built-in table makes sense as a price.
func TestBuiltinIsSane(t *testing.T) {
	t.Parallel()
	table := builtinTable(t)
	if len(table.builtin) < 1500 {
		t.Errorf("%d models, want at least 1500", len(table.builtin))
	}
	for id, e := range table.builtin {
		if (Row{entry: e}).Free() {
			t.Errorf("%s is free of charge", e.name)
		}
		for _, tier := range e.tiers {
			for i, step := range tier.steps {
				for kind, price := range step.sheet {
					if price < 0 || price > 1_000*nano {
						t.Errorf("%s %s over %d: price %d of kind %d", e.name, tier.name, step.over, price, kind)
					}
				}
				if s := step.sheet; s[cacheWrite] < s[input] && tier.name == standard {
					t.Errorf("%s over %d: a cache write is cheaper than input", e.name, step.over)
				}
				if i > 0 && step.over <= tier.steps[i-1].over {
					t.Errorf("%s %s: steps out of order", e.name, tier.name)
				}
			}
		}
		if most := table.maxOutput[id]; most < 0 || most > usage.MaxTokens {
			t.Errorf("%s writes at most %d tokens", e.name, most)
		}
	}
}

func TestTiersComplete(t *testing.T) {
	t.Parallel()
	const prices = `
p,m,priority,0,4,,,,,,
p,m,standard,200,2.5,5,,,,,
p,m,standard,0,1.25,2.5,0.2,,7,,
p,m,flex,200,0.1,0.2,,,,,
p,m,flex,0,0.6,1.2,,,,,
p,m,standard,100,,3,,,,,
`
	table, err := parseTable(prices, "p,m,4096,\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, service string
		tokens        int64
		want          [kinds]float64 // dollars per million
	}{
		{"base", "", 0, [...]float64{1.25, 2.5, 0.2, 1.25, 7, 1.25, 2.5}},
		{"at the threshold", "", 100, [...]float64{1.25, 2.5, 0.2, 1.25, 7, 1.25, 2.5}},
		{"above it: what is missing comes from below", "", 101, [...]float64{1.25, 3, 0.2, 1.25, 7, 1.25, 3}},
		{"the highest crossed wins", "", 201, [...]float64{2.5, 5, 0.2, 2.5, 7, 2.5, 5}},
		{"a tier falls back to standard", "priority", 0, [...]float64{4, 2.5, 0.2, 4, 7, 4, 2.5}},
		{"a step of standard only: the dearer", "priority", 201, [...]float64{4, 5, 0.2, 4, 7, 4, 5}},
		{"its own step stands", "flex", 201, [...]float64{0.1, 0.2, 0.2, 0.1, 7, 0.1, 0.2}},
		{"a step it lacks", "flex", 150, [...]float64{1.25, 3, 0.2, 1.25, 7, 1.25, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var want sheet
			for i, dollars := range tt.want {
				want[i] = int64(dollars*1000) * million
			}
			if diff := cmp.Diff(want, sheetOf(t, table, "p", "m", tt.service, tt.tokens)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestThresholdInclusive(t *testing.T) {
	t.Parallel()
	const prices = "p,m,standard,0,1,1,,,,,\np,m,standard,200,2,2,,,,,\n"
	for _, tt := range []struct {
		name, models string
		at           int64 // price of input at exactly 200 tokens
	}{
		{"exclusive", "p,m,,\n", 1_000_000_000},
		{"inclusive", "p,m,,1\n", 2_000_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table, err := parseTable(prices, tt.models)
			if err != nil {
				t.Fatal(err)
			}
			for tokens, want := range map[int64]int64{199: 1_000_000_000, 200: tt.at, 201: 2_000_000_000} {
				if got := sheetOf(t, table, "p", "m", "", tokens)[input]; got != want {
					t.Errorf("input at %d tokens costs %d, want %d", tokens, got, want)
				}
			}
		})
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	price := func(n int64) config.Price { return config.Price{Input: nanos(n), Output: nanos(n)} }
	table := builtinTable(t).With(map[string]config.Price{
		"openai/my-model":    price(1),
		"my-model":           price(2),
		"openai/gpt-4o-mini": price(3),
		"lab/own-7b":         price(4),
		"gpt-4o":             price(5),
		"zero":               price(0),
	})
	for _, tt := range []struct {
		name, provider, model string
		want                  int64
		row                   string
	}{
		{"the provider's row goes first", "openai", "my-model", 1, "config:openai/my-model"},
		{"the row for all providers", "azure", "my-model", 2, "config:my-model"},
		{"a row over the built-in one", "openai", "gpt-4o-mini", 3, "config:openai/gpt-4o-mini"},
		{"first part is no provider", "together", "lab/own-7b", 4, "config:lab/own-7b"},
		{"first part is the deployment's own provider", "lab", "own-7b", 4, "config:lab/own-7b"},
		{"a row for all providers over built-in ones", "azure", "gpt-4o", 5, "config:gpt-4o"},
		{"no provider", "", "my-model", 2, "config:my-model"},
		{"zero is a price", "openai", "zero", 0, "config:zero"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			row, ok := table.Find(tt.provider, tt.model)
			if !ok {
				t.Fatal("not found")
			}
			if got := row.schedule().at(1 << 40)[input]; got != tt.want || row.Name() != tt.row {
				t.Errorf("input costs %d by %q, want %d by %q", got, row.Name(), tt.want, tt.row)
			}
			if row.Free() != (tt.want == 0) {
				t.Errorf("Free = %t", row.Free())
			}
		})
	}
	if _, ok := table.Find("azure", "openai/my-model"); ok {
		t.Error("a row of one provider is found as a model's name")
	}
	if row, _ := builtinTable(t).Find("openai", "gpt-4o-mini"); row.Name() != "builtin:openai/gpt-4o-mini" {
		t.Errorf("the built-in table has changed: %q", row.Name())
	}
	again := table.With(map[string]config.Price{"zero": price(9)})
	if row, _ := again.Find("openai", "zero"); row.Free() {
		t.Error("a later row does not replace the earlier one")
	}
	if row, _ := table.Find("openai", "zero"); !row.Free() {
		t.Error("With changed its own table")
	}
}

func TestRowName(t *testing.T) {
	t.Parallel()
	row, _ := builtinTable(t).Find("openai", "gpt-4o-mini")
	for _, tt := range []struct {
		name string
		row  Row
		want string
	}{
		{"standard", row, "builtin:openai/gpt-4o-mini"},
		{"tier", row.ForTier("Priority"), "builtin:openai/gpt-4o-mini+priority"},
		{"back to standard", row.ForTier("priority").ForTier("default"), "builtin:openai/gpt-4o-mini"},
		{"contract", row.WithFactor(1), "builtin:openai/gpt-4o-mini"},
		{"deployment", FromConfig(config.Price{}), "deployment"},
		{"none", Row{}.ForTier("priority"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.row.Name(); got != tt.want {
				t.Errorf("Name = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFromConfig(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		price config.Price
		want  sheet
	}{
		{"input and output", config.Price{Input: nanos(5), Output: nanos(9)}, sheet{5, 9, 5, 5, 5, 5, 9}},
		{"cache", config.Price{Input: nanos(5), Output: nanos(9), CacheRead: nanos(1), CacheWrite: nanos(6)}, sheet{5, 9, 1, 6, 6, 6, 9}},
		{"explicit zeros", config.Price{Input: nanos(5), Output: nanos(9), CacheRead: nanos(0), CacheWrite: nanos(0), Reasoning: nanos(0)},
			sheet{5, 9, 0, 0, 0, 0, 0}},
		{"all", config.Price{Input: nanos(1), Output: nanos(2), CacheRead: nanos(3), CacheWrite: nanos(4), CacheWrite1h: nanos(5),
			CacheWrite12h: nanos(6), Reasoning: nanos(7)}, sheet{1, 2, 3, 4, 5, 6, 7}},
		{"input only", config.Price{Input: nanos(5)}, sheet{5, 0, 5, 5, 5, 5, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, *FromConfig(tt.price).schedule().at(0)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseTableErrors(t *testing.T) {
	t.Parallel()
	const good = "p,m,standard,0,1,2,,,,,\n"
	for _, tt := range []struct {
		name, prices, models, want string
	}{
		{"columns", good + "p,n,standard,0,1\n", "", "prices.csv: line 2 has 5 columns, not 11"},
		{"threshold", "p,m,standard,many,1,2,,,,,\n", "", `prices.csv: line 1: threshold "many" is no number of tokens`},
		{"price", "# comment\n\np,m,standard,0,1,-2,,,,,\n", "", `line 3: price "-2" is no amount of dollars`},
		{"decimals", "p,m,standard,0,1.0000000001,2,,,,,\n", "", `more than 9 decimals`},
		{"fraction", "p,m,standard,0,1.x,2,,,,,\n", "", `price "1.x" is no amount of dollars`},
		{"too much", "p,m,standard,0,99999999,2,,,,,\n", "", `too much`},
		{"twice", good + good, "", "a second standard price over 0 tokens"},
		{"no standard price", "p,m,batch,0,1,2,,,,,\n", "", "builtin:p/m has no standard price"},
		{"no base step", "p,m,standard,100,1,2,,,,,\n", "", "no price for input from the first token on"},
		{"no input", "p,m,standard,0,,2,,,,,\n", "", "no price for input from the first token on"},
		{"limits of no model", good, "p,n,100,\n", "models.csv: line 1: p/n has no price"},
		{"limit", good, "p,m,-1,\n", `models.csv: line 1: maximum "-1" is no number of tokens`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := parseTable(tt.prices, tt.models); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzParseTable: a table is refused, or every price in it is one.
func FuzzParseTable(f *testing.F) {
	f.Add("p,m,standard,0,1,2,,,,,\np,m,batch,200,0.5,,,,,,0\n", "p,m,4096,1\n")
	f.Fuzz(func(t *testing.T, prices, models string) {
		table, err := parseTable(prices, models)
		if err != nil {
			return
		}
		for _, e := range table.builtin {
			for _, tier := range e.tiers {
				for _, step := range tier.steps {
					for _, price := range step.sheet {
						if price < 0 || price > MaxNano+nano {
							t.Fatalf("price %d", price)
						}
					}
				}
			}
		}
	})
}

func BenchmarkParseTable(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseTable(priceFacts, modelFacts); err != nil {
			b.Fatal(err)
		}
	}
}
