package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "tollgate.yaml")
	text := `teams:
  - id: search
    limits:
      rmp: 600
      budgets: [{usd: -100, per: month}]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	_, err = config.Load(path, config.Options{})
	var problems config.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Printf("line %d: %s: %s\n", p.Line, p.Key, p.Message)
		}
	}
	// Output:
	// line 4: teams[0].limits.rmp: unknown key; did you mean "rpm"?
	// line 5: teams[0].limits.budgets[0].usd: must not be negative
}

func ExampleConfig_Explain() {
	c := config.Default()
	c.AddDemo("http://127.0.0.1:8000/v1", "sk-tg-demo")
	if err := c.Explain(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// configuration (none)
	//
	// listeners (plaintext)
	//   extproc  127.0.0.1:9901
	//   admin    127.0.0.1:9902
	//   health   127.0.0.1:9904
	//   xds      off under serve
	//   gateway  127.0.0.1:8080
	//
	// store
	//   counters in this process: they are lost at a restart and not shared between replicas
	//   when it does not answer: budgets deny, rates local, cache miss, unknown keys deny
	//   calendar periods begin in UTC; enforcement: block
	//
	// models (1)
	//   demo: strategy usage
	//     demo: http://127.0.0.1:8000/v1 speaks openai; no credential; own price input 0.15 output 0.6
	//
	// orgs (0), teams (1), keys (1)
	//   team demo: 10 usd per day, rpm 600, tpm 1000000
	//   key demo: of team demo; 1 usd per day, parallel 50
	//
	// cache: answers live 1m, shared within each team, at most 1MiB each
}
