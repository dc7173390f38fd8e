package config

import (
	"strings"
	"testing"
)

// problem is one bad file and all that Load says of it, one problem a line, without the "t.yaml:" in front.
type problem struct {
	name, text, want string
}

func checkProblems(t *testing.T, tests []problem) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := loadText(test.text, nil)
			got := ""
			if err != nil {
				got = strings.ReplaceAll("\n"+err.Error(), "\nt.yaml:", "\n")[1:]
			}
			if got != test.want {
				t.Errorf("%s\n got %s\nwant %s", test.text, got, test.want)
			}
		})
	}
}

// modelM is a model that nothing is wrong with.
const modelM = "models: [{name: m, aliases: [mm], deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}]\n"

func TestYAMLProblems(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	checkProblems(t, []problem{
		{"second document", "version: 1\n---\nteams: []\n", "2: a second document (---) is not read; join the two, or use include"},
		{"duplicate key", "drain: 1s\nlog: {}\ndrain: 2s\n", "3: drain: stands twice; first in line 1"},
		{"duplicate key in quotes", "log: {level: info, \"level\": warn}\n", "1: log.level: stands twice; first in line 1"},
		{"anchor and alias", "log: &x {level: info}\ndebug: *x\n",
			"1: log: anchors (&) and aliases (*) are not supported; a text that begins with * or & needs quotes\n" +
				"2: debug: anchors (&) and aliases (*) are not supported; a text that begins with * or & needs quotes"},
		{"merge key", "log:\n  <<: {level: info}\n", "2: log: merge keys (<<) are not supported; write the values out"},
		{"tag", "drain: !!str 5s\n", "1: drain: tags (!) are not supported; a text that begins with ! needs quotes"},
		{"directive", "%YAML 1.2\n---\nversion: 1\n", "1: YAML directives (%) are not supported"},
		{"complex key", "? a\n: b\n", "1: a key must be plain text"},
		{"not closed", "log: {level: info\n", "1: not valid YAML: could not find flow mapping end token '}'"},
		{"bad indentation", "log:\n  level: info\n format: json\n", "3: not valid YAML: value is not allowed in this context"},
		{"tab", "log:\n\tlevel: info\n", "2: not valid YAML: found character '\t' that cannot start any token"},
		{"variable in a flow mapping", "log: {level: ${X}}\n", `1: not valid YAML: ',' or '}' must be specified (inside { } and [ ] a variable needs quotes: "${NAME}")`},
		{"star without quotes", modelM + "teams:\n- id: a\n  models: [*]\n", "4: not valid YAML: unexpected scalar value type (a text that begins with *, & or ! needs quotes)"},
		{"list at the top", "- a\n", "1: must be a mapping of keys to values"},
		{"text at the top", "hello\n", "1: must be a mapping of keys to values"},
		{"too deep", "teams: " + deep, "1: nests deeper than 64 levels"},
		{"too deep in dashes", "teams:\n" + strings.Repeat("- ", 100) + "a\n", "2: nests deeper than 64 levels"},
		{"bad UTF-8", "version: 1\nlog: {level: \"\xff\"}\n", "2: must be UTF-8 text without control characters"},
		{"NUL", "version: 1\n\x00", "2: must be UTF-8 text without control characters"},
	})
}

func TestKeyProblems(t *testing.T) {
	t.Parallel()
	checkProblems(t, []problem{
		{"unknown at the top", "team: []\n", `1: team: unknown key; did you mean "teams"?`},
		{"unknown far from all", "version: 1\nzzzzzzzzzzzz: 1\n", `2: zzzzzzzzzzzz: unknown key; the nearest known key is "timezone"`},
		{"unknown inside", "log:\n  level: info\n  levle: info\n", `3: log.levle: unknown key; did you mean "level"?`},
		{"unknown in a list", "teams:\n- id: a\n  limits:\n    rmp: 5\n", `4: teams[0].limits.rmp: unknown key; did you mean "rpm"?`},
		{"a budget under its peer's name", "keys:\n- id: a\n  secret: x\n  max_budget: 5\n", `4: keys[0].max_budget: unknown key; the nearest known key is "secret"`},
		{"several at once", "drian: 1s\nlog: {level: loud}\nerrors: {budget_status: 200}\n",
			"1: drian: unknown key; did you mean \"drain\"?\n" +
				"2: log.level: \"loud\" is not one of debug, info, warn, error\n" +
				"3: errors.budget_status: \"200\" is not one of 429, 402, 403, 422, 400"},
		{"mapping for a value", "drain: {a: 1}\n", "1: drain: must be a single value"},
		{"list for a value", "drain: [5s]\n", "1: drain: must be a single value"},
		{"value for a list", "teams: a\n", "1: teams: must be a list"},
		{"mapping for a list", "teams: {a: {}}\n", "1: teams: must be a list"},
		{"value for a mapping", "log: info\n", "1: log: must be a mapping of keys to values"},
		{"value for names", "prices: 5\n", "1: prices: must be a mapping of names to values"},
		{"nothing in a list", "auth: {key_headers: [~]}\n", "1: auth.key_headers[0]: has no value; the text null needs quotes"},
		{"twice in a list", "auth: {key_headers: [x-a, x-a]}\n", `1: auth.key_headers[1]: "x-a" stands twice in the list`},
	})
}

func TestSettingProblems(t *testing.T) {
	t.Parallel()
	checkProblems(t, []problem{
		{"version", "version: 2\n", "1: version: must be 1, the only version there is"},
		{"time zone", "timezone: Mars/Olympus\n", "1: timezone: must be a time zone such as UTC or Europe/Berlin"},
		{"local time", "timezone: Local\n", "1: timezone: must be a time zone such as UTC or Europe/Berlin"},
		{"listen without port", "listen: {extproc: 127.0.0.1}\n", "1: listen.extproc: must be host:port or unix:/path"},
		{"listen on no port", "listen: {extproc: '127.0.0.1:70000'}\n", "1: listen.extproc: must end in a port from 0 to 65535"},
		{"listen on a relative socket", "listen: {extproc: 'unix:run/x'}\n", "1: listen.extproc: must be unix: and an absolute path of at most 103 bytes"},
		{"two listeners on one address", "listen:\n  admin: 127.0.0.1:9901\n", "1: listen: extproc and admin have the same address 127.0.0.1:9901"},
		{"drain without unit", "drain: 30\n", "1: drain: must be a duration such as 100ms, 30s, 5m, 12h or 400d"},
		{"drain too long", "drain: 2h\n", "1: drain: must be at most 1h"},
		{"redis scheme", "redis: {url: 'http://h'}\n", "1: redis.url: must begin with one of redis://, rediss://, unix://, redis+cluster://, rediss+cluster://, redis+sentinel://, rediss+sentinel://"},
		{"redis user twice", "redis:\n  url: redis://bob@h:6379\n  username: ada\n", "3: redis.username: the url names a user too; one of the two must go"},
		{"redis password twice", "redis:\n  url: redis://:a@h:6379\n  password: b\n", "3: redis.password: the url holds a password too; one of the two must go"},
		{"redis deadline", "redis: {url: 'redis://h', deadline: 0s}\n", "1: redis.deadline: must be at least 1ms"},
		{"redis prefix", "redis: {url: 'redis://h', prefix: 'a{b}'}\n", "1: redis.prefix: must be 1 to 32 letters, digits, '.', '_' or '-'"},
		{"redis scripts", "redis: {url: 'redis://h', scripts: eva}\n", `1: redis.scripts: "eva" is not one of evalsha, eval; did you mean "eval"?`},
		{"failure policy", "redis: {url: 'redis://h', on_failure: {cache: local}}\n", `1: redis.on_failure.cache: "local" is not one of miss, deny`},
		{"postgres without url", "postgres: {migrate: true}\n", "1: postgres: url is required"},
		{"postgres scheme", "postgres: {url: 'mysql://h/db'}\n", "1: postgres.url: must be a URL such as postgres://tollgate@127.0.0.1:5432/tollgate"},
		{"postgres password twice", "postgres:\n  url: postgres://u:p@h/db\n  password: q\n", "3: postgres.password: the url holds a password too; one of the two must go"},
		{"journal without dir", "journal: {max: 1GiB}\n", "1: journal: dir is required"},
		{"journal too small", "journal: {dir: /x, max: 1KiB}\n", "1: journal.max: must be at least 1MiB"},
		{"ledger", "ledger: {retention: 1h, stream_max: 0, end_user: full}\n",
			"1: ledger.retention: must be at least 1d\n1: ledger.stream_max: must be at least 1\n1: ledger.end_user: \"full\" is not one of plain, hash, drop"},
		{"stream_max in scientific", "ledger: {stream_max: 1e6}\n", "1: ledger.stream_max: must be a whole number such as 600: digits only, no fraction, exponent, sign or separator"},
		{"auth mode", "auth: {mode: requird}\n", `1: auth.mode: "requird" is not one of required, optional; did you mean "required"?`},
		{"header in capitals", "auth: {key_headers: [X-Key]}\n", "1: auth.key_headers[0]: must be a header name in lower case"},
		{"jwt", "auth: {jwt: [{issuer: 'ftp://x', claims: {teem: groups}}]}\n",
			"1: auth.jwt[0].issuer: must begin with http:// or https://\n1: auth.jwt[0]: jwks is required\n1: auth.jwt[0]: audience is required\n" +
				"1: auth.jwt[0].claims.teem: unknown key; claims give team, user, org, project, end_user; did you mean \"team\"?"},
		{"identity source", "identity: {end_user: ['a b']}\n", "1: identity.end_user[0]: must be a header that begins with x- or a path in the body such as metadata.user_id"},
		{"admin token", "admin: {tokens: [{name: a, role: boss}]}\n", "1: admin.tokens[0]: token is required\n1: admin.tokens[0].role: \"boss\" is not one of admin, finops, viewer, team_admin"},
		{"team admin of no team", "admin: {tokens: [{name: a, token: x, role: team_admin}]}\n", "1: admin.tokens[0]: teams belong to role team_admin, which needs at least one"},
		{"admin of a team", "admin: {tokens: [{name: a, token: x, role: team_admin, teams: [nobody]}]}\n", `1: admin.tokens[0].teams[0]: "nobody" is no team of this configuration`},
		{"admin tokens of one name", "admin: {tokens: [{name: a, token: x, role: admin}, {name: a, token: y, role: admin}]}\n", `1: admin.tokens[1].name: admin token "a" stands twice; first in t.yaml:1`},
		{"enforce", "enforce: maybe\n", `1: enforce: "maybe" is not one of block, audit, off`},
		{"routing", "routing: envoi\n", `1: routing: "envoi" is not one of tollgate, envoy; did you mean "envoy"?`},
		{"realtime without an end", "endpoints: {realtime: true}\n", "1: endpoints.realtime: needs {max_session: 30m}: a session without an end could spend without one"},
		{"realtime without max", "endpoints: {realtime: {}}\n", "1: endpoints.realtime: max_session is required"},
		{"pass", "endpoints: {pass: ['v1/x', '/v1/*']}\n",
			"1: endpoints.pass[0]: must be a path such as /v1/my-own, without query or '*'\n1: endpoints.pass[1]: must be a path such as /v1/my-own, without query or '*'"},
		{"defaults", "defaults: {output_tokens: 0, unpriced: maybe, max_body: 2GiB, enforce_output_tokens: 1}\n",
			"1: defaults.output_tokens: must be at least 1\n1: defaults.enforce_output_tokens: must be true or false\n" +
				"1: defaults.unpriced: \"maybe\" is not one of deny_budgeted, deny, allow\n1: defaults.max_body: must be at most 1GiB"},
		{"price map", "price_map: {format: csv}\n", "1: price_map: file is required\n1: price_map.format: \"csv\" is not one of litellm"},
		{"absent price map", "price_map: {file: /nowhere/p.json}\n", "1: price_map.file: file /nowhere/p.json does not exist"},
		{"cache for all tenants", "cache: {scope: global}\n", "1: cache.scope: global needs cache.allow_cross_tenant: true, for tenants then see each other's answers"},
		{"cache", "cache: {ttl: 0s, scope: user, max_entry: 1B}\n",
			"1: cache.ttl: must be at least 1s\n1: cache.scope: \"user\" is not one of key, team, org, global\n1: cache.max_entry: must be at least 1KiB"},
		{"webhook", "alerts: {webhooks: [{format: xml}]}\n", "1: alerts.webhooks[0]: url is required\n1: alerts.webhooks[0].format: \"xml\" is not one of json, slack"},
		{"tracing", "tracing: {otlp: '127.0.0.1:4317'}\n", "1: tracing.otlp: must be a URL such as https://api.example.com/v1"},
		{"tracing without url", "tracing: {}\n", "1: tracing: otlp is required"},
	})
}
