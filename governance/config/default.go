package config

import "time"

// Default is the configuration of an empty file.
func Default() *Config {
	return &Config{
		Timezone: time.UTC,
		Listen:   Listen{ExtProc: "127.0.0.1:9901", Admin: "127.0.0.1:9902", Health: "127.0.0.1:9904"},
		Gateway:  Gateway{Address: "127.0.0.1:8080"},
		Drain:    30 * time.Second,
		Redis: Redis{
			Prefix:    "tg",
			Deadline:  100 * time.Millisecond,
			Scripts:   "evalsha",
			OnFailure: OnFailure{Budgets: "deny", Rates: "local", Cache: "miss", UnknownKey: "deny"},
		},
		Ledger:   Ledger{Retention: 400 * day, StreamMax: 1000000, EndUser: "plain"},
		Auth:     Auth{Mode: "required"},
		Enforce:  Block,
		Routing:  "tollgate",
		Defaults: Defaults{OutputTokens: 1024, Unpriced: "deny_budgeted", MaxBody: 32 << 20},
		Errors:   Errors{BudgetStatus: 429},
		Log:      Log{Level: "info", Format: "json"},
	}
}

// defaultCache is the cache of a file that says `cache: {}`. Without that key there is none.
func defaultCache() *Cache {
	return &Cache{TTL: time.Minute, Scope: "team", MaxEntry: 1 << 20}
}
