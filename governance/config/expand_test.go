package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	env := lookup(map[string]string{"A": "1", "DOLLAR": "$A ${A}", "EMPTY": "", "_x9": "y"})
	for _, test := range []struct {
		name, raw, want string
		used            bool
		unset           []string
		err             error
	}{
		{name: "no dollar", raw: "abc", want: "abc"},
		{name: "empty", raw: ""},
		{name: "whole", raw: "${A}", want: "1", used: true},
		{name: "inside", raw: "a${A}b${_x9}c", want: "a1byc", used: true},
		{name: "a dollar", raw: "a$$b", want: "a$b"},
		{name: "dollars before a name", raw: "$${A}", want: "${A}"},
		{name: "three dollars", raw: "$$${A}", want: "$1", used: true},
		{name: "no second round", raw: "${DOLLAR}", want: "$A ${A}", used: true},
		{name: "set and empty", raw: "${EMPTY}", used: true},
		{name: "unset", raw: "${B}${C}", used: true, unset: []string{"B", "C"}},
		{name: "lone dollar", raw: "pa$word", err: errDollar},
		{name: "dollar at the end", raw: "pa$", err: errDollar},
		{name: "not closed", raw: "${A", err: errName},
		{name: "no name", raw: "${}", err: errName},
		{name: "digit first", raw: "${9a}", err: errName},
		{name: "a shell's default", raw: "${A:-1}", err: errName},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, used, unset, err := expand(test.raw, env)
			if !errors.Is(err, test.err) || got != test.want || used != test.used || !cmp.Equal(unset, test.unset) {
				t.Errorf("expand(%q) = %q, %v, %v, %v", test.raw, got, used, unset, err)
			}
		})
	}
}

// FuzzExpand: doubling the dollars of any text gives that text back, and never reads a variable.
func FuzzExpand(f *testing.F) {
	f.Add("a$b${C}")
	f.Add("$${")
	f.Fuzz(func(t *testing.T, s string) {
		_, _, _, _ = expand(s, lookup(nil))
		got, used, unset, err := expand(strings.ReplaceAll(s, "$", "$$"), lookup(nil))
		if got != s || used || unset != nil || err != nil {
			t.Fatalf("%q with doubled dollars = %q, %v, %v, %v", s, got, used, unset, err)
		}
	})
}

// TestValues is what a value in the file means, by the kind of its key.
func TestValues(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"newline": "s3cret\n", "crlf": "s3cret\r\n", "bare": "s3cret", "two": "s3cret\n\n", "inside": "a\nb\n", "empty": "", "url": "redis://h:1/0\n", "blank": "s3cret ",
	})
	vars := map[string]string{"PW": "1234", "RPM": "60", "EMPTY": "", "REF": "env:PW", "LF": "a\nb", "DIR": dir, "URL": "redis://h:1/0", "ZONE": "Europe/Berlin"}
	password := func(c *Config) string { return c.Redis.Password }
	address := func(c *Config) string { return c.Redis.URL }
	for _, test := range []struct {
		name, text string
		get        func(*Config) string
		want, err  string
	}{
		{name: "leading zeros stay", text: "redis: {url: 'redis://h', password: 00123}", get: password, want: "00123"},
		{name: "a float stays text", text: "redis: {url: 'redis://h', password: 1.10}", get: password, want: "1.10"},
		{name: "a hexadecimal stays text", text: "redis: {url: 'redis://h', password: 0x1F}", get: password, want: "0x1F"},
		{name: "true stays text", text: "redis: {url: 'redis://h', password: true}", get: password, want: "true"},
		{name: "a quoted null is text", text: "redis: {url: 'redis://h', password: \"null\"}", get: password, want: "null"},
		{name: "a bare null is none", text: "redis: {url: 'redis://h', password: null}", get: password, want: ""},
		{name: "variable in a secret", text: "redis: {url: 'redis://h', password: \"x${PW}\"}", get: password, want: "x1234"},
		{name: "dollar in a secret", text: "redis: {url: 'redis://h', password: a$$b}", get: password, want: "a$b"},
		{name: "env", text: "redis: {url: 'redis://h', password: env:PW}", get: password, want: "1234"},
		{name: "env in a URL", text: "redis: {url: env:URL}", get: address, want: "redis://h:1/0"},
		{name: "file in a URL", text: "redis: {url: \"file:${DIR}/url\"}", get: address, want: "redis://h:1/0"},
		{name: "a variable holds no reference", text: "redis: {url: 'redis://h', password: \"${REF}\"}", get: password, want: "env:PW"},
		{name: "file with a line break", text: "redis: {url: 'redis://h', password: \"file:${DIR}/newline\"}", get: password, want: "s3cret"},
		{name: "file with CR LF", text: "redis: {url: 'redis://h', password: \"file:${DIR}/crlf\"}", get: password, want: "s3cret"},
		{name: "file without line break", text: "redis: {url: 'redis://h', password: \"file:${DIR}/bare\"}", get: password, want: "s3cret"},
		{name: "file with two line breaks", text: "redis: {url: 'redis://h', password: \"file:${DIR}/two\"}", err: "t.yaml:1: redis.password: has a line break inside"},
		{name: "line break inside a file", text: "redis: {url: 'redis://h', password: \"file:${DIR}/inside\"}", err: "t.yaml:1: redis.password: has a line break inside"},
		{name: "line break inside a variable", text: "redis: {url: 'redis://h', password: env:LF}", err: "t.yaml:1: redis.password: has a line break inside"},
		{name: "block text", text: "redis:\n  url: redis://h\n  password: |\n    abc\n", err: "t.yaml:3: redis.password: has a line break inside"},
		{name: "blank at the end", text: "redis: {url: 'redis://h', password: \"file:${DIR}/blank\"}", err: "t.yaml:1: redis.password: begins or ends with a blank"},
		{name: "empty file", text: "redis: {url: 'redis://h', password: \"file:${DIR}/empty\"}", err: "t.yaml:1: redis.password: is empty"},
		{name: "empty variable", text: "redis: {url: 'redis://h', password: env:EMPTY}", err: "t.yaml:1: redis.password: is empty"},
		{name: "unset variable", text: "redis:\n  url: redis://h\n  password: env:NONE", err: "t.yaml:3: redis.password: environment variable NONE is not set"},
		{name: "unset variable inside", text: "drain: ${NONE}s", err: "t.yaml:1: drain: environment variable NONE is not set"},
		{name: "absent file", text: "redis: {url: 'redis://h', password: file:/nowhere/pw}", err: "t.yaml:1: redis.password: file /nowhere/pw does not exist"},
		{name: "env without name", text: "redis: {url: 'redis://h', password: \"env:\"}", err: "t.yaml:1: redis.password: env: must be followed by the name of a variable"},
		{name: "file without path", text: "redis: {url: 'redis://h', password: \"file:\"}", err: "t.yaml:1: redis.password: file: must be followed by a path"},
		{name: "lone dollar", text: "redis: {url: 'redis://h', password: pa$word}", err: "t.yaml:1: redis.password: a dollar is written $$, a variable ${NAME}"},
		{name: "env where no secret is", text: "log: {level: env:LEVEL}", err: "t.yaml:1: log.level: env: works only in secrets, URLs and PEM; elsewhere write ${NAME}"},
		{name: "file where no secret is", text: "drain: file:/x", err: "t.yaml:1: drain: file: works only in secrets, URLs and PEM; elsewhere write ${NAME}"},
		{name: "variable in any value", text: "timezone: ${ZONE}", get: func(c *Config) string { return c.Timezone.String() }, want: "Europe/Berlin"},
		{name: "a quoted value converts as a bare one", text: "drain: \"5${NONE_YET}s\"", err: "t.yaml:1: drain: environment variable NONE_YET is not set"},
		{name: "variable in a number", text: "teams: [{id: a, limits: {rpm: \"${RPM}\"}}]", get: func(c *Config) string { return limitsText(c.Teams[0].Limits) }, want: "rpm 60"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadText(test.text, vars)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := test.get(c); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestNoErrorShowsASecret puts a secret wherever it does not belong and reads what the errors say.
func TestNoErrorShowsASecret(t *testing.T) {
	t.Parallel()
	const secret = "sk-VERYSECRET"
	vars := map[string]string{"S": secret}
	for _, text := range []string{
		"drain: ${S}", "drain: " + secret, "version: ${S}", "log: {level: \"${S}\"}", "redis: {url: " + secret + "}",
		"redis: {url: 'redis://u:" + secret + "@:x'}", "postgres: {url: 'postgres://u:" + secret + "@h'}",
		"redis: {password: |" + secret + "\n", "redis: {url: 'redis://h', password: |" + secret + "\n",
		"redis:\n  password: |" + secret + "\n", "redis:\n  password: \"" + secret, "redis:\n  password: " + secret + ": x: y\n",
		"redis:\n  password: " + secret + "\n   url: x\n", "redis: [" + secret + "]", "redis: " + secret,
		"models: [{name: a, deployments: [{name: d, dialect: openai, url: 'https://u:" + secret + "@h', price: {input: " + secret + ", output: 0}}]}]",
		"models: [{name: a, deployments: [{name: d, dialect: openai, url: 'https://h', credential: \"a b\\n" + secret + "\"}]}]",
		"keys: [{id: \"${S}\"}]", "keys: [{id: a, secret: " + secret + "}, {id: b, secret: " + secret + "}]", "keys: [{id: a, secret: x, team: \"${S}\"}]",
		"keys: [{id: a, secret_sha256: " + secret + "}]", "keys: [{id: a, secret: x, expires: " + secret + "}]", "tls: {cert: " + secret + "}",
		"keys: [{id: a, secret: x, models: [\"${S}\"]}]", "keys: [{id: a, secret: x, limits: {rpm: " + secret + ", budgets: [{usd: " + secret + ", per: \"${S}\"}]}}]",
		"include: [\"${S}[\"]", "teams: [{id: \"${S}\"}, {id: \"${S}\"}]",
	} {
		_, err := loadText(text, vars)
		if err == nil {
			t.Errorf("%q loads", text)
		} else if strings.Contains(err.Error(), "VERYSECRET") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
