package price_test

import (
	"fmt"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/governance/price"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

func Example() {
	table, err := price.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	row, ok := table.Find("openai", "gpt-4o-mini")
	if !ok {
		fmt.Println("no price")
		return
	}
	row = row.WithFactor(820_000) // a contract at 82 % of the list price

	fixed, perMillion := row.Reserve(2_000)
	fmt.Println("reserved for the input:", fixed, "and for a million tokens of output:", perMillion)

	cost := row.Cost(usage.Usage{Input: 2_006, CacheRead: 1_920, Output: 300})
	fmt.Println(row.Name(), "list:", cost.List, "contract:", cost.Contract)
	// Output:
	// reserved for the input: 246000 and for a million tokens of output: 492000000
	// builtin:openai/gpt-4o-mini list: 336900 contract: 276258
}

func ExampleTable_With() {
	builtin, err := price.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	input, output := config.Nano(150_000_000), config.Nano(600_000_000) // $0.15 and $0.60 per million tokens
	table := builtin.With(map[string]config.Price{"openai/my-model": {Input: &input, Output: &output}})
	row, ok := table.Find("openai", "my-model")
	fmt.Println(row.Name(), ok, row.Cost(usage.Usage{Input: 1_000, Output: 100}).List)
	// Output:
	// config:openai/my-model true 210000
}
