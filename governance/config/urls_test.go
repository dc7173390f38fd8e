package config

import (
	"strings"
	"testing"
)

// ruling is one case of a rule: good, or bad for a reason that begins so.
type ruling struct{ text, wrong string }

func checkRule(t *testing.T, name string, check rule, tests []ruling) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		for _, test := range tests {
			got := check(test.text)
			if (got == "") != (test.wrong == "") || !strings.HasPrefix(got, test.wrong) {
				t.Errorf("%q: %q, want %q", test.text, got, test.wrong)
			}
		}
	})
}

func TestURLRules(t *testing.T) {
	t.Parallel()
	checkRule(t, "redis", redisRule, []ruling{
		{"redis://127.0.0.1:6379/0", ""},
		{"redis://u:p@h", ""},
		{"redis://:p/with?marks@h", "must"},
		{"rediss://h:6380/15", ""},
		{"redis://[::1]:6379", ""},
		{"unix:///run/redis.sock", ""},
		{"unix:///run/redis.sock?db=3", ""},
		{"redis+cluster://a:1,b:2,c", ""},
		{"rediss+cluster://u:p@a:1/", ""},
		{"redis+sentinel://a:1,b:2/mymaster", ""},
		{"redis+sentinel://a:1,b:2/mymaster/3", ""},
		{"127.0.0.1:6379", "must be a URL"},
		{"redis://h with blank", "must be a URL"},
		{"redis://h#x", "must be a URL"},
		{"tcp://h", "must begin with one of redis://"},
		{"redis://", "must name a host"},
		{"redis://:6379", "must name hosts as host:port"},
		{"redis://h:", "must name hosts as host:port"},
		{"redis://h:x", "must name hosts as host:port"},
		{"redis://h:70000", "must name hosts as host:port"},
		{"redis://a,b", "must name one host"},
		{"redis://h/one", "must end in the number of a database"},
		{"redis://h/-1", "must end in the number of a database"},
		{"redis://h?db=1", "must not have a query"},
		{"rediss://h?cacert=/etc/ca.pem", ""},
		{"rediss+cluster://a,b?cacert=/etc/ca.pem&cert=/c.pem&key=/k.pem", ""},
		{"rediss://h?cert=/c.pem", "can have no query but ?cacert=FILE and &cert=FILE&key=FILE"},
		{"rediss://h?cacert=", "can have no query but ?cacert=FILE and &cert=FILE&key=FILE"},
		{"rediss://h?skip_verify=true", "can have no query but ?cacert=FILE and &cert=FILE&key=FILE"},
		{"redis+cluster://a/1", "must not name a database"},
		{"redis+cluster://a,,b", "must name hosts as host:port"},
		{"redis+sentinel://a", "must name the master"},
		{"redis+sentinel://a/m/x", "must name the master"},
		{"unix://h/run/redis.sock", "must be unix:// and an absolute path"},
		{"unix://", "must be unix:// and an absolute path"},
		{"unix:///run/redis.sock?timeout=1", "can have no query but ?db=0"},
		{"unix:///run/redis.sock?db=x", "can have no query but ?db=0"},
	})
	checkRule(t, "postgres", postgresRule, []ruling{
		{"postgres://tollgate@127.0.0.1:5432/tollgate", ""},
		{"postgresql://a:1,b:2/db?sslmode=require", ""},
		{"postgres://h", "must name a database"},
		{"postgres://h/", "must name a database"},
		{"postgres:///db", "must name a host"},
		{"host=h dbname=db", "must be a URL"},
	})
	checkRule(t, "webhook", webhookRule, []ruling{
		{"https://hooks.example/services/T0?x=1", ""},
		{"https://hooks.example/#x", "must not have a query or fragment"},
		{"ftp://hooks.example", "must begin with http"},
	})
	checkRule(t, "upstream", upstreamRule, []ruling{
		{"https://api.openai.com/v1", ""},
		{"http://127.0.0.1:8000", ""},
		{"http://[::1]:8000/v1", ""},
		{"http://vllm.models.svc.cluster.local:8000/v1", ""},
		{"http://h ost/", "must be a URL"},
		{"http://-h/", "must name a host"},
		{"http://ho\x01st/", "must be a URL"},
		{"HTTP://h", ""},
	})
}

func TestTextRules(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 65)
	checkRule(t, "id", idRule, []ruling{
		{"a", ""}, {"A.b_c-9", ""}, {long[:64], ""},
		{"", "must be 1 to 64"}, {long, "must be 1 to 64"}, {"a b", "must be 1 to 64"}, {"é", "must be 1 to 64"}, {"a/b", "must be 1 to 64"}, {"a:b", "must be 1 to 64"}, {"a\r\nb", "must be 1 to 64"},
	})
	checkRule(t, "tag pattern", tagPatternRule, []ruling{
		{"ci", ""}, {"env=prod", ""}, {"env=*", ""},
		{"*", "must be a tag"}, {"=*", "must be a tag"}, {"env=", "must be a tag"}, {"env=p*", "must be a tag"}, {"a=b=c", "must be a tag"}, {long[:60] + "=abcd", "must be a tag"},
	})
	checkRule(t, "end user", endUserRule, []ruling{
		{"ada@example.com", ""}, {"user 1/é", ""}, {"", "must have 1 to 256"}, {strings.Repeat("a", 257), "must have 1 to 256"}, {"a\x00b", "has a control"}, {"a\u202eb", "has a control"}, {"a\xff", "has a control"},
	})
	checkRule(t, "model", modelNameRule, []ruling{
		{"gpt-4o-mini", ""}, {"openai/*", ""}, {"*", ""}, {"模型名", ""}, {"anthropic.claude-v2:1", ""},
		{"", "must have 1 to 256"}, {"a b", "must not have blanks"}, {"!a", "must not begin with '!'"}, {"a**", "can have a '*' only at the end"}, {"*a", "can have a '*' only at the end"},
	})
	checkRule(t, "header", headerRule, []ruling{
		{"x-tollgate-key", ""}, {"", "must be a header name of"}, {"x key", "must be a header name in lower case"}, {"x:", "must be a header name in lower case"}, {long, "must be a header name of"},
	})
	checkRule(t, "source", sourceRule, []ruling{
		{"user", ""}, {"metadata.user_id", ""}, {"x-user", ""}, {"a..b", "must be a header"}, {"x-A", "must be a header name in lower case"},
	})
	checkRule(t, "address", addressRule, []ruling{
		{"127.0.0.1:9901", ""}, {":9901", ""}, {"0.0.0.0:0", ""}, {"[::]:9901", ""}, {"localhost:9901", ""}, {"unix:/run/x.sock", ""},
		{"9901", "must be host:port"}, {"h:", "must end in a port"}, {"h:x", "must end in a port"}, {"h:+1", "must end in a port"}, {"h h:1", "must be host:port"},
		{"unix:", "must be unix:"}, {"unix:/" + long + long, "must be unix:"}, {strings.Repeat("a.", 130) + ":1", "must be host:port"},
	})
	checkRule(t, "secret", secretRule, []ruling{
		{"s3cret", ""}, {"with blanks inside", ""}, {"ünïcode", ""}, {"", "is empty"}, {"a\rb", "has a line break"}, {" a", "begins or ends"}, {"a\tb", "has a control"},
	})
	checkRule(t, "text", textRule, []ruling{{"a b", ""}, {"", "must have 1 to 1024"}, {"a\nb", "must have 1 to 1024"}})
}
