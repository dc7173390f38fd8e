package price

import (
	_ "embed" // the facts
	"maps"
	"strings"
	"sync"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// PRICE_FACTS is the directory of the source's tables; see gen.go.
//go:generate go run gen.go -from $PRICE_FACTS

//go:embed prices.csv
var priceFacts string

//go:embed models.csv
var modelFacts string

// key is a model of a provider; without a provider it is a model of all of them.
type key struct{ provider, model string }

// Table says what the models of every provider cost. It does not change and is safe to share.
type Table struct {
	builtin   map[key]*entry
	own       map[key]*entry // by the configuration; they go first
	maxOutput map[key]int64
	providers map[string]bool // that the built-in table knows
}

var builtin = sync.OnceValues(func() (*Table, error) { return parseTable(priceFacts, modelFacts) })

// Builtin is the table of public list prices that tollgate is built with. It is read at the first call, in a few
// milliseconds; an error would mean that the embedded facts are damaged.
func Builtin() (*Table, error) { return builtin() }

// With is the table with the rows of a configuration over it. The key of a row is "provider/model" if its first part
// is a provider the table knows, or the one that Find is asked for; else the whole is an upstream's model name, whoever
// serves it. A row replaces all there is about its model, thresholds and service tiers included.
func (t *Table) With(rows map[string]config.Price) *Table {
	with := *t
	with.own = maps.Clone(t.own)
	if with.own == nil {
		with.own = make(map[key]*entry, len(rows))
	}
	for name, row := range rows {
		e := fromConfig("config:"+name, row)
		provider, model, found := strings.Cut(name, "/")
		if found {
			with.own[key{provider, model}] = e
		}
		if !found || !t.providers[provider] {
			with.own[key{"", name}] = e
		}
	}
	return &with
}

// Find looks up what a provider's model costs by the name the upstream knows: a row for that provider, else one for
// all, else the built-in price. False: nobody stated a price.
func (t *Table) Find(provider, model string) (Row, bool) {
	for _, e := range [...]*entry{
		t.own[key{provider, model}], t.own[key{"", model}], t.builtin[key{provider, model}],
	} {
		if e != nil {
			return Row{entry: e}, true
		}
	}
	return Row{}, false
}

// MaxOutput is how many tokens a provider's model writes at the most; 0 when that is not known.
func (t *Table) MaxOutput(provider, model string) int64 { return t.maxOutput[key{provider, model}] }
