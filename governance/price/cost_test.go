package price

import (
	"encoding/json"
	"math/big"
	"os"
	"testing"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// costCase is one entry of testdata/cost_cases.json, worked out by hand from the providers' rules.
type costCase struct {
	Name            string
	PricePerMillion struct {
		Over        json.Number
		Inclusive   bool
		Base, Tier  map[string]*json.Number
		Multipliers []json.Number
	} `json:"price_per_million"`
	Usage struct {
		InputTotal     int64 `json:"input_total"`
		CacheRead      int64 `json:"cache_read"`
		CacheWriteBase int64 `json:"cache_write_base"`
		CacheWrite1h   int64 `json:"cache_write_1h"`
		CacheWrite12h  int64 `json:"cache_write_12h"`
		OutputTotal    int64 `json:"output_total"`
		Reasoning      int64
	}
	USD string
}

// columns writes the prices of a case as prices.csv does.
func columns(prices map[string]*json.Number) string {
	var line string
	for _, name := range []string{"input", "output", "cache_read", "cache_write", "cache_write_1h", "cache_write_12h", "reasoning"} {
		line += ","
		if price := prices[name]; price != nil {
			line += price.String()
		}
	}
	return line + "\n"
}

// row reads the prices of a case as the built-in table is read.
func (c *costCase) row(t *testing.T) Row {
	t.Helper()
	prices, models := "p,m,standard,0"+columns(c.PricePerMillion.Base), ""
	if over := c.PricePerMillion.Over; over != "" {
		prices += "p,m,standard," + over.String() + columns(c.PricePerMillion.Tier)
	}
	if c.PricePerMillion.Inclusive {
		models = "p,m,,1\n"
	}
	table, err := parseTable(prices, models)
	if err != nil {
		t.Fatal(err)
	}
	row, ok := table.Find("p", "m")
	if !ok {
		t.Fatal("the case's own row is not found")
	}
	return row
}

func TestCostCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/cost_cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []costCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			want, err := parsePrice(c.USD)
			if err != nil {
				t.Fatal(err)
			}
			// Multipliers of a case act on all kinds of tokens, as a contract's factor does.
			factor := big.NewRat(million, 1)
			for _, m := range c.PricePerMillion.Multipliers {
				r, _ := new(big.Rat).SetString(m.String())
				factor.Mul(factor, r)
			}
			row := c.row(t).WithFactor(config.PriceFactor(factor.Num().Int64()))
			u := c.Usage
			got := row.Cost(usage.Usage{
				Input: u.InputTotal, CacheRead: u.CacheRead, CacheWrite: u.CacheWriteBase, CacheWrite1h: u.CacheWrite1h,
				CacheWrite12h: u.CacheWrite12h, Output: u.OutputTotal, Reasoning: u.Reasoning,
			})
			if got.Contract != want {
				t.Errorf("cost = %d, want %d nano-dollars", got.Contract, want)
			}
			if len(c.PricePerMillion.Multipliers) == 0 && got.List != want {
				t.Errorf("list cost = %d, want %d nano-dollars", got.List, want)
			}
		})
	}
}

func nanos(n int64) *config.Nano { return &n }

func TestCost(t *testing.T) {
	t.Parallel()
	full := config.Price{
		Input: nanos(1_000_000), Output: nanos(10_000_000), CacheRead: nanos(100_000), CacheWrite: nanos(2_000_000),
		CacheWrite1h: nanos(3_000_000), CacheWrite12h: nanos(4_000_000), Reasoning: nanos(20_000_000),
	}
	for _, tt := range []struct {
		name   string
		price  config.Price
		factor config.PriceFactor
		usage  usage.Usage
		want   Cost
	}{
		{"nothing", full, 0, usage.Usage{}, Cost{}},
		{"every kind", full, 0, usage.Usage{Input: 1111, CacheRead: 1, CacheWrite: 10, CacheWrite1h: 100, CacheWrite12h: 1000, Output: 3, Reasoning: 1},
			Cost{4360, 4360}}, // 0.1 + 20 + 300 + 4000 + 20 + 20 = 4360.1
		{"half up", config.Price{Input: nanos(500_000)}, 0, usage.Usage{Input: 1}, Cost{1, 1}},
		{"below half", config.Price{Input: nanos(499_999)}, 0, usage.Usage{Input: 1}, Cost{0, 0}},
		{"rounded once", config.Price{Input: nanos(400_000), Output: nanos(400_000)}, 0, usage.Usage{Input: 1, Output: 1}, Cost{1, 1}},
		{"a fraction of a nano-dollar a token", config.Price{Input: nanos(2_500_000)}, 0, usage.Usage{Input: 3}, Cost{8, 8}},
		{"free", config.Price{Input: nanos(0), Output: nanos(0)}, 0, usage.Usage{Input: 1 << 40, Output: 1 << 40}, Cost{}},
		{"contract", full, 820_000, usage.Usage{Input: 100}, Cost{100, 82}},
		{"contract rounded on its own", config.Price{Input: nanos(1_000_000)}, 500_000, usage.Usage{Input: 1}, Cost{1, 1}},
		{"contract of the exact sum", config.Price{Input: nanos(1_400_000)}, 1_500_000, usage.Usage{Input: 1}, Cost{1, 2}},
		{"contract dearer than the list", full, 2_000_000, usage.Usage{Output: 1}, Cost{10, 20}},
		{"negative counts", full, 0, usage.Usage{Input: -5, CacheRead: -7, Output: -1, Reasoning: -1}, Cost{}},
		{"one negative count lowers nothing", full, 0, usage.Usage{Input: 10, CacheRead: -10, Output: 1, Reasoning: -5}, Cost{20, 20}},
		{"more cached than there is", full, 0, usage.Usage{Input: 5, CacheRead: 10}, Cost{1, 1}},
		{"saturates", config.Price{Input: nanos(1 << 62), Output: nanos(1 << 62)}, 1 << 62,
			usage.Usage{Input: 1 << 62, Output: 1 << 62}, Cost{MaxNano, MaxNano}},
		{"list saturates, contract does not", config.Price{Input: nanos(MaxNano)}, 1, usage.Usage{Input: 2_000_000}, Cost{MaxNano, 18014398509}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := FromConfig(tt.price).WithFactor(tt.factor).Cost(tt.usage); got != tt.want {
				t.Errorf("Cost = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestReserve(t *testing.T) {
	t.Parallel()
	table, err := parseTable("p,m,standard,0,2,10,,,,,12\np,m,standard,200,4,15,,,,,\np,m,priority,0,3,20,,,,,\np,m,flex,0,1,5,,,,,\n", "")
	if err != nil {
		t.Fatal(err)
	}
	row, _ := table.Find("p", "m")
	for _, tt := range []struct {
		name      string
		row       Row
		input     int64
		fixed     int64
		perOutput int64
	}{
		{"nothing", row, 0, 0, 12_000_000_000},
		{"below the threshold, reasoning is dearer", row, 200, 400_000, 12_000_000_000},
		{"above it", row, 201, 804_000, 15_000_000_000},
		{"a dearer tier", row.ForTier("priority"), 100, 300_000, 20_000_000_000},
		{"a cheaper tier may end at the standard one", row.ForTier("flex"), 100, 200_000, 12_000_000_000},
		{"contract", row.WithFactor(500_000), 100, 100_000, 6_000_000_000},
		{"negative estimate", row, -1, 0, 12_000_000_000},
		{"estimate without end", row, 1 << 62, 1 << 40 * 4000, 15_000_000_000},
		{"rounds up", FromConfig(config.Price{Input: nanos(1), Output: nanos(1)}).WithFactor(1), 1, 1, 1},
		{"free", FromConfig(config.Price{Input: nanos(0), Output: nanos(0)}), 1 << 40, 0, 0},
		{"no row", Row{}, 1000, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if fixed, perOutput := tt.row.Reserve(tt.input); fixed != tt.fixed || perOutput != tt.perOutput {
				t.Errorf("Reserve(%d) = %d, %d, want %d, %d", tt.input, fixed, perOutput, tt.fixed, tt.perOutput)
			}
		})
	}
}

// FuzzCost compares with arithmetic of any size.
func FuzzCost(f *testing.F) {
	f.Add(int64(1000), int64(900), int64(50), int64(7), int64(3), int64(150_000_000), int64(600_000_000), int64(75_000_000), int64(820_000))
	f.Add(int64(1)<<62, int64(-1), int64(1)<<62, int64(1)<<50, int64(1)<<40, int64(1)<<62, int64(1)<<53, int64(-1), int64(1)<<62)
	f.Fuzz(func(t *testing.T, input, read, write, output, thought, priceIn, priceOut, priceRead, factor int64) {
		row := FromConfig(config.Price{Input: &priceIn, Output: &priceOut, CacheRead: &priceRead}).WithFactor(config.PriceFactor(factor))
		got := row.Cost(usage.Usage{Input: input, CacheRead: read, CacheWrite: write, Output: output, Reasoning: thought})

		clamp := func(n, most int64) *big.Int { return big.NewInt(min(max(n, 0), most)) }
		tokens := func(n int64) *big.Int { return clamp(n, usage.MaxTokens) }
		sum := new(big.Int)
		add := func(n *big.Int, price int64) {
			if n.Sign() > 0 {
				sum.Add(sum, new(big.Int).Mul(n, clamp(price, MaxNano)))
			}
		}
		rest := new(big.Int).Sub(tokens(input), new(big.Int).Add(tokens(read), tokens(write)))
		add(rest, priceIn)
		add(tokens(read), priceRead)
		add(tokens(write), priceIn)
		add(tokens(output).Sub(tokens(output), tokens(thought)), priceOut)
		add(tokens(thought), priceOut)
		if factor <= 0 {
			factor = million
		}
		want := Cost{
			List:     roundHalfUp(sum, big.NewInt(million)),
			Contract: roundHalfUp(new(big.Int).Mul(sum, big.NewInt(factor)), big.NewInt(million*million)),
		}
		if got != want {
			t.Errorf("Cost = %+v, want %+v", got, want)
		}
	})
}

func roundHalfUp(sum, divisor *big.Int) int64 {
	half := new(big.Int).Rsh(divisor, 1)
	q := new(big.Int).Div(half.Add(half, sum), divisor)
	if q.Cmp(big.NewInt(MaxNano)) > 0 {
		return MaxNano
	}
	return q.Int64()
}

// FuzzReserve: what was reserved covers what the same tokens cost, as long as none were written to a cache at a price
// above the input's.
func FuzzReserve(f *testing.F) {
	f.Add(int64(1000), int64(200), int64(50), int64(3), int64(5), int64(999_983))
	f.Fuzz(func(t *testing.T, input, output, thought, priceIn, priceOut, factor int64) {
		output, thought = min(max(output, 0), 1<<20), min(max(thought, 0), 1<<20)
		priceIn, priceOut, factor = priceIn&(1<<40-1), priceOut&(1<<32-1), factor&(1<<21-1)
		row := FromConfig(config.Price{Input: &priceIn, Output: &priceOut}).WithFactor(config.PriceFactor(factor))
		fixed, perMillion := row.Reserve(input)
		reserved := fixed + (perMillion*max(output, thought)+million-1)/million
		cost := row.Cost(usage.Usage{Input: input, Output: max(output, thought), Reasoning: thought}).Contract
		if cost > reserved && fixed < MaxNano {
			t.Errorf("reserved %d, cost %d", reserved, cost)
		}
	})
}

func BenchmarkCost(b *testing.B) {
	table, err := Builtin()
	if err != nil {
		b.Fatal(err)
	}
	row, _ := table.Find("openai", "gpt-4o-mini")
	row = row.WithFactor(820_000)
	u := usage.Usage{Input: 1200, CacheRead: 1024, Output: 340, Reasoning: 128}
	b.ReportAllocs()
	for b.Loop() {
		row.Cost(u)
	}
}
