package config

import "testing"

func TestModelProblems(t *testing.T) {
	t.Parallel()
	deployment := func(rest string) string {
		return "models:\n- name: m\n  deployments:\n  - {name: d, url: 'https://api.openai.com', dialect: openai, " + rest + "}\n"
	}
	address := func(url string) string {
		return "models:\n- name: m\n  deployments:\n  - {name: d, dialect: openai, price: {input: 0, output: 0}, url: '" + url + "'}\n"
	}
	checkProblems(t, []problem{
		{"nothing required is there", "models: [{}]\n", "1: models[0]: name is required\n1: models[0]: deployments is required: nothing serves this model"},
		{"empty deployment", "models: [{name: m, deployments: [{}]}]\n",
			"1: models[0].deployments[0]: name is required\n1: models[0].deployments[0]: url is required\n1: models[0].deployments[0]: dialect is required"},
		{"star in the middle", "models: [{name: 'a*b', deployments: []}]\n", "1: models[0].name: can have a '*' only at the end\n1: models[0]: deployments is required: nothing serves this model"},
		{"name with a blank", "models: [{name: 'a b', deployments: []}]\n", "1: models[0].name: must not have blanks or control characters inside\n1: models[0]: deployments is required: nothing serves this model"},
		{"model twice", modelM + "access_groups: {}\norgs: []\n", ""},
		{"alias of two models", "models:\n- {name: a, aliases: [x], deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}\n" +
			"- {name: b, aliases: [x], deployments: [{name: e, url: 'https://api.openai.com', dialect: openai}]}\n", `3: models[1].aliases[0]: alias "x" stands twice; first in t.yaml:2`},
		{"alias that is a model", "models:\n- {name: a, aliases: [b], deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}\n" +
			"- {name: b, deployments: [{name: e, url: 'https://api.openai.com', dialect: openai}]}\n", `2: models[0].aliases[0]: "b" is the name of a model too, in t.yaml:3`},
		{"alias of a wildcard", "models: [{name: 'a*', aliases: [b], deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}]\n",
			"1: models[0].aliases[0]: a wildcard model cannot have aliases: they leave open which model is meant"},
		{"model of two rows", "models:\n- {name: a, deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}\n" +
			"- {name: a, deployments: [{name: e, url: 'https://api.openai.com', dialect: openai}]}\n", `3: models[1].name: model "a" stands twice; first in t.yaml:2`},
		{"deployment twice", "models:\n- {name: a, deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}\n" +
			"- {name: b, deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}\n", `3: models[1].deployments[0].name: deployment "d" stands twice; first in t.yaml:2`},
		{"fallback to itself", "models: [{name: a, fallbacks: [a], deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}]\n", "1: models[0].fallbacks: a model cannot be its own fallback"},
		{"fallback to nothing", "models: [{name: gpt-4o, fallbacks: [gpt-4], deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}]\n",
			`1: models[0].fallbacks[0]: "gpt-4" is no model, alias or access group; did you mean "gpt-4o"?`},
		{"strategy", "models: [{name: a, strategy: random, deployments: [{name: d, url: 'https://api.openai.com', dialect: openai}]}]\n",
			`1: models[0].strategy: "random" is not one of usage, shuffle, latency, least_busy, cost`},
		{"dialect", "models: [{name: a, deployments: [{name: d, url: 'https://api.openai.com', dialect: openia}]}]\n",
			`1: models[0].deployments[0].dialect: "openia" is not one of openai, azure, anthropic, gemini, bedrock; did you mean "openai"?`},
		{"weight", deployment("weight: 0"), "4: models[0].deployments[0].weight: must be at least 1"},
		{"weight with a fraction", deployment("weight: 1.5"), "4: models[0].deployments[0].weight: must be a whole number such as 600: digits only, no fraction, exponent, sign or separator"},
		{"rpm in two places", deployment("rpm: 5, limits: {rpm: 6}"), "4: models[0].deployments[0].rpm: stands in limits too; one of the two must go"},
		{"rpm with a fraction", deployment("rpm: 1.9"), "4: models[0].deployments[0].rpm: must be a whole number such as 600: digits only, no fraction, exponent, sign or separator"},
		{"negative price", deployment("price: {input: -1, output: 1}"), "4: models[0].deployments[0].price.input: must not be negative"},
		{"price of nothing", deployment("price: {}"), "4: models[0].deployments[0].price: needs input and output; 0 is a price"},
		{"price factor", deployment("price_factor: 0"), "4: models[0].deployments[0].price_factor: must be a plain decimal such as 0.82, above 0, at most 1000, with at most six decimals"},
		{"empty credential", deployment("credential: ''"), "4: models[0].deployments[0].credential: is empty"},
		{"no scheme", address("api.openai.com/v1"), "4: models[0].deployments[0].url: must begin with http:// or https://"},
		{"no URL", address("://"), "4: models[0].deployments[0].url: must be a URL such as https://api.example.com/v1"},
		{"no host", address("https:///v1"), "4: models[0].deployments[0].url: must name a host"},
		{"user", address("https://u@h/v1"), "4: models[0].deployments[0].url: must not hold a user or password"},
		{"query", address("https://h/v1?key=1"), "4: models[0].deployments[0].url: must not have a query or fragment"},
		{"empty query", address("https://h/v1?"), "4: models[0].deployments[0].url: must not have a query or fragment"},
		{"fragment", address("https://h/v1#x"), "4: models[0].deployments[0].url: must not have a query or fragment"},
		{"port", address("https://h:99999/v1"), "4: models[0].deployments[0].url: must have a port from 0 to 65535"},
		{"no port behind the colon", address("https://h:/v1"), "4: models[0].deployments[0].url: must have a port from 0 to 65535"},
		{"group named as a model", modelM + "access_groups:\n  m: [m]\n", "3: access_groups.m: is the name of a model too; one of the two must be renamed"},
		{"group named as an alias", modelM + "access_groups:\n  mm: [m]\n", `3: access_groups.mm: is an alias of model "m" too; one of the two must be renamed`},
		{"group of nothing", modelM + "access_groups: {g: [n]}\n", `2: access_groups.g[0]: "n" is no model, alias or access group; did you mean "m"?`},
		{"group in a group", modelM + "access_groups: {g: [m], h: [g]}\n", `2: access_groups.h[0]: "g" is an access group; models are needed here`},
		{"price row", "prices:\n  openai/x: {input: 0.15, output: 1, outptu: 1}\n", `2: prices.openai/x.outptu: unknown key; did you mean "output"?`},
		{"price row without a price", "prices:\n  openai/x: {cache_read: 1}\n", "2: prices.openai/x: needs input and output; 0 is a price"},
		{"provider id", "providers: {'a b': {}}\n", "1: providers.a b: the name must be 1 to 64 letters, digits, '.', '_' or '-'"},
	})
}

func TestIdentityProblems(t *testing.T) {
	t.Parallel()
	key := func(rest string) string { return modelM + "keys:\n- {id: k, secret: s, " + rest + "}\n" }
	checkProblems(t, []problem{
		{"id missing", "teams: [{}]\n", "1: teams[0]: id is required"},
		{"id with a slash", "teams: [{id: a/b}]\n", "1: teams[0].id: must be 1 to 64 letters, digits, '.', '_' or '-'"},
		{"id twice", "users: [{id: a}]\nteams:\n- id: a\n- id: a\n", `4: teams[1].id: team "a" stands twice; first in t.yaml:3`},
		{"unknown org", "orgs: [{id: acme}]\nteams: [{id: a, org: acmee}]\n", `2: teams[0].org: "acmee" is no org of this configuration; did you mean "acme"?`},
		{"unknown team", key("team: nobody"), `3: keys[0].team: "nobody" is no team of this configuration`},
		{"unknown project", key("project: nothing"), `3: keys[0].project: "nothing" is no project of this configuration`},
		{"project of another team", "teams: [{id: a}, {id: b}]\nprojects: [{id: p, team: a}]\nkeys: [{id: k, secret: s, team: b, project: p}]\n", `3: keys[0].project: project "p" belongs to team "a", the key does not`},
		{"org of another team", "orgs: [{id: a}, {id: b}]\nteams: [{id: t, org: a}]\nkeys: [{id: k, secret: s, team: t, org: b}]\n", `3: keys[0].org: team "t" belongs to org "a", the key to another`},
		{"project without team", "projects: [{id: p}]\n", "1: projects[0]: team is required"},
		{"member twice", "teams: [{id: t}]\nteam_members:\n- {team: t, user: u}\n- {team: t, user: u}\n", `4: team_members[1]: team member "t/u" stands twice; first in t.yaml:3`},
		{"member of nothing", "team_members: [{}]\n", "1: team_members[0]: team is required\n1: team_members[0]: user is required"},
		{"end user twice", "end_users:\n- {id: 'user 1/é'}\n- {id: 'user 1/é'}\n", `3: end_users[1].id: end user "user 1/é" stands twice; first in t.yaml:2`},
		{"end users of two orgs", "orgs: [{id: a}, {id: b}]\nend_users: [{id: u, org: a}, {id: u, org: b}]\n", ""},
		{"end user with a line break", "end_users: [{id: \"a\\nb\"}]\n", "1: end_users[0].id: has a control character or bad UTF-8 inside"},
		{"tag", "tags: [{id: '*'}]\n", "1: tags[0].id: must be a tag such as ci or env=prod: at most 64 letters, digits, '.', '_' or '-', and one '='"},
		{"tags", "tags: [{id: 'env=*'}, {id: 'env=prod'}, {id: ci}]\n", ""},
		{"pattern on a key", key("tags: ['env=*']"), "3: keys[0].tags[0]: must be a tag such as ci or env=prod: at most 64 letters, digits, '.', '_' or '-', and one '='"},
		{"too many tags", key("tags: [a,b,c,d,e,f,g,h,i,j,k]"), "3: keys[0].tags: must have at most 10 tags"},
		{"no secret", "keys: [{id: a}]\n", "1: keys[0]: needs exactly one of secret and secret_sha256"},
		{"two secrets", "keys: [{id: a, secret: x, secret_sha256: y}]\n", "1: keys[0]: needs exactly one of secret and secret_sha256"},
		{"short hash", "keys: [{id: a, secret_sha256: abc}]\n", "1: keys[0].secret_sha256: must be 64 hex digits, the SHA-256 of the whole secret"},
		{"one secret for two keys", "keys:\n- {id: a, secret: x}\n- {id: b, secret: x}\n", "3: keys[1].secret: two keys with the same secret; the other is keys[0] in t.yaml:2"},
		{"secret and its own hash", "keys:\n- {id: a, secret: abc}\n- {id: b, secret_sha256: BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD}\n",
			"3: keys[1].secret_sha256: two keys with the same secret; the other is keys[0] in t.yaml:2"},
		{"a date for a time", key("expires: 2027-12-31"), "3: keys[0].expires: must be a time with its zone such as 2027-12-31T00:00:00Z (RFC 3339)"},
		{"unknown model", key("models: [mn]"), `3: keys[0].models[0]: "mn" is no model, alias or access group; did you mean "m"?`},
		{"unknown pattern", key("models: ['x/*']"), `3: keys[0].models[0]: "x/*" matches no model`},
		{"unknown denial", key("models: ['*', '!zz']"), `3: keys[0].models[1]: "!zz" is no model, alias or access group`},
		{"good names", key("models: ['*', m, mm, 'm*', '!m']"), ""},
		{"alias of nothing", key("aliases: {fast: nothing}"), `3: keys[0].aliases.fast: "nothing" is no model, alias or access group`},
		{"alias of itself", key("aliases: {m: m}"), "3: keys[0].aliases.m: stands for itself"},
		{"alias of a pattern", key("aliases: {fast: 'm*'}"), "3: keys[0].aliases.fast: must be one name without '*'"},
		{"endpoint", key("endpoints: [chat, embedding]"), "3: keys[0].endpoints[1]: is no endpoint; the endpoints are chat, completions, responses, embeddings, moderations, images, speech, transcriptions, translations, rerank, models, files, batches, realtime, messages, count_tokens, generate, converse, invoke; did you mean \"embeddings\"?"},
		{"cheaper model", modelM + "teams: [{id: a, on_exhausted: [x]}]\n", `2: teams[0].on_exhausted[0]: "x" is no model, alias or access group; did you mean "m"?`},
		{"cache for all tenants", "cache: {}\nteams: [{id: a, cache: {scope: global}}]\n", "2: teams[0].cache.scope: global needs cache.allow_cross_tenant: true, for tenants then see each other's answers"},
		{"zone of a scope", "teams: [{id: a, timezone: Nowhere}]\n", "1: teams[0].timezone: must be a time zone such as UTC or Europe/Berlin"},
	})
}

func TestLimitProblems(t *testing.T) {
	t.Parallel()
	limits := func(text string) string { return modelM + "teams:\n- id: a\n  limits: {" + text + "}\n" }
	const at = "4: teams[0].limits."
	const whole = ": must be a whole number such as 600: digits only, no fraction, exponent, sign or separator"
	checkProblems(t, []problem{
		{"nothing is admitted", limits("rpm: 0, tpm: 0, parallel: 0, budgets: [{usd: 0, per: day}]"), ""},
		{"fraction", limits("rpm: 1.9"), at + "rpm" + whole},
		{"negative", limits("parallel: -1"), at + "parallel: must not be negative"},
		{"words", limits("tpm: many"), at + "tpm" + whole},
		{"limit and enforce", limits("rpm: {limit: 600, enforce: audit}, tpm: {limit: 5}"), ""},
		{"enforce alone", limits("rpm: {enforce: audit}"), at + "rpm: limit is required"},
		{"enforce of a limit", limits("rpm: {limit: 5, enforce: no}"), at + `rpm.enforce: "no" is not one of block, audit, off`},
		{"unlimited", limits("rpm: null"), ""},
		{"budget of nothing", limits("budgets: [{per: day}]"), at + "budgets[0]: needs exactly one of usd, tokens and requests"},
		{"budget of two", limits("budgets: [{usd: 5, tokens: 5, per: day}]"), at + "budgets[0]: needs exactly one of usd, tokens and requests"},
		{"budget without period", limits("budgets: [{usd: 5}]"), at + "budgets[0]: per is required"},
		{"period", limits("budgets: [{usd: 5, per: year}]"), at + `budgets[0].per: "year" is not one of minute, hour, day, week, month, 30d, lifetime`},
		{"all periods", limits("budgets: [{usd: 5, per: minute}, {usd: 5, per: hour}, {usd: 5, per: day}, {usd: 5, per: week}, {usd: 5, per: month}, {usd: 5, per: 30d}, {usd: 5, per: lifetime}]"), ""},
		{"negative amount", limits("budgets: [{usd: -7, per: day}]"), at + "budgets[0].usd: must not be negative"},
		{"not a number", limits("budgets: [{usd: .nan, per: day}]"), at + "budgets[0].usd: must be a plain decimal in US dollars such as 12.50: no sign, exponent or separator"},
		{"infinite", limits("budgets: [{usd: .inf, per: day}]"), at + "budgets[0].usd: must be a plain decimal in US dollars such as 12.50: no sign, exponent or separator"},
		{"1e400", limits("budgets: [{usd: 1e400, per: day}]"), at + "budgets[0].usd: must be a plain decimal in US dollars such as 12.50: no sign, exponent or separator"},
		{"too large", limits("budgets: [{usd: 10000000, per: day}]"), at + "budgets[0].usd: is too large: the most is 9007199.254740991 dollars (2^53 - 1 nano-dollars)"},
		{"too many tokens", limits("budgets: [{tokens: 9007199254740992, per: day}]"), at + "budgets[0].tokens: is too large: the most is 9007199254740991 (2^53 - 1)"},
		{"half a token", limits("budgets: [{tokens: 0.5, per: day}]"), at + "budgets[0].tokens" + whole},
		{"the same period twice", limits("budgets: [{usd: 5, per: day}, {usd: 6, per: day}]"), at + "budgets[1]: a second budget in usd per day"},
		{"soft beside hard", limits("budgets: [{usd: 5, per: day}, {usd: 4, per: day, soft: true}, {tokens: 5, per: day}]"), ""},
		{"alert", limits("budgets: [{usd: 5, per: day, alert: [80, 100%]}]"), at + "budgets[0].alert[0]: must be a whole percentage such as 80%"},
		{"raise", limits("budgets: [{usd: 5, per: day, raises: [{usd: 50, until: 2027-01-01T00:00:00Z, note: launch}]}]"), ""},
		{"raise in another unit", limits("budgets: [{usd: 5, per: day, raises: [{tokens: 50, until: 2027-01-01T00:00:00Z}]}]"), at + "budgets[0].raises[0]: must be in usd, as its budget is"},
		{"raise for ever", limits("budgets: [{usd: 5, per: day, raises: [{usd: 50}]}]"), at + "budgets[0].raises[0]: until is required"},
		{"what tpm counts", limits("tpm: 5, tpm_counts: all"), at + `tpm_counts: "all" is not one of total, uncached, input, output`},
		{"largest request", limits("max_request: {}"), at + "max_request: needs at least one of usd, input_tokens and output_tokens"},
		{"largest request in floats", limits("max_request: {usd: 2, input_tokens: 1.5}"), at + "max_request.input_tokens" + whole},
		{"per model", limits("per_model: {m: {rpm: 5}, 'm*': {tpm: 5}}"), ""},
		{"per unknown model", limits("per_model: {n: {rpm: 5}}"), at + `per_model.n: "n" is no model, alias or access group; did you mean "m"?`},
		{"per alias", limits("per_model: {mm: {rpm: 5}}"), at + `per_model.mm: is an alias; limits count the model it stands for, "m"`},
		{"per model in per model", limits("per_model: {m: {per_model: {}}}"), at + `per_model.m.per_model: unknown key; the nearest known key is "parallel"`},
	})
}
