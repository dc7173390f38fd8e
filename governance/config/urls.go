package config

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The rules of this file never use the messages of net/url: those repeat the URL with its password.

// httpRule: http or https with a host, and no user. query allows a query; what Slack-like receivers need there is part
// of the address.
func httpRule(s string, query bool) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || !readable(s) || strings.Contains(s, " "):
		return "must be a URL such as https://api.example.com/v1"
	case u.Scheme != "http" && u.Scheme != "https":
		return "must begin with http:// or https://"
	case !hostText(u.Hostname()):
		return "must name a host"
	case u.Port() != "" && !portText(u.Port()) || strings.HasSuffix(u.Host, ":"):
		return "must have a port from 0 to 65535"
	case u.User != nil:
		return "must not hold a user or password"
	case !query && (u.RawQuery != "" || u.ForceQuery), u.Fragment != "" || strings.Contains(s, "#"):
		return "must not have a query or fragment"
	}
	return ""
}

func upstreamRule(s string) string { return httpRule(s, false) }

// otlpRule: a URL, or "on".
func otlpRule(s string) string {
	if s == TracingOn {
		return ""
	}
	return upstreamRule(s)
}

func webhookRule(s string) string { return httpRule(s, true) }

// storeURL is a Redis or PostgreSQL URL in parts. Its hosts are not split by net/url, which knows only one.
type storeURL struct {
	scheme             string
	username, password string // as they stand in the URL, to see whether there are any
	hosts              []string
	path               string
	query              string
}

func splitStoreURL(s string) (storeURL, bool) {
	scheme, rest, found := strings.Cut(s, "://")
	if !found || !readable(s) || strings.ContainsAny(s, " #") {
		return storeURL{}, false
	}
	u := storeURL{scheme: scheme}
	rest, u.query, _ = strings.Cut(rest, "?")
	authority := rest
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, u.path = rest[:slash], rest[slash:]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		u.username, u.password, _ = strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
	}
	if authority != "" {
		u.hosts = strings.Split(authority, ",")
	}
	return u, true
}

// redisSchemes are the shapes of a Redis: one server, a Unix socket, a cluster, sentinels; with rediss over TLS.
var redisSchemes = []string{"redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"}

// redisRule: redis://host:port/db, unix:///path?db=0, redis+cluster://h1:p,h2:p or redis+sentinel://h1:p,h2:p/master/db.
func redisRule(s string) string {
	u, ok := splitStoreURL(s)
	switch {
	case !ok:
		return "must be a URL such as redis://127.0.0.1:6379/0"
	case !slices.Contains(redisSchemes, u.scheme):
		return "must begin with one of " + strings.Join(redisSchemes, "://, ") + "://"
	case u.scheme == "unix":
		return unixRedisRule(u)
	}
	if wrong := tlsQueryRule(u); wrong != "" {
		return wrong
	}
	if wrong := hostsRule(u.hosts); wrong != "" {
		return wrong
	}
	switch _, shape, _ := strings.Cut(u.scheme, "+"); {
	case shape == "cluster" && strings.Trim(u.path, "/") != "":
		return "must not name a database: a cluster has only one"
	case shape == "sentinel":
		master, db, _ := strings.Cut(strings.TrimPrefix(u.path, "/"), "/")
		if !idText(master) || !databaseText(db) {
			return "must name the master, such as redis+sentinel://h1:26379,h2:26379/mymaster/0"
		}
	case shape == "" && len(u.hosts) > 1:
		return "must name one host; several need redis+cluster:// or redis+sentinel://"
	case shape == "" && !databaseText(strings.TrimPrefix(u.path, "/")):
		return "must end in the number of a database, such as /0"
	}
	return ""
}

// tlsQueryRule: over TLS a query may name files: the authority to trust, the client's certificate and its key.
func tlsQueryRule(u storeURL) string {
	if u.query == "" {
		return ""
	}
	if !strings.HasPrefix(u.scheme, "rediss") {
		return "must not have a query"
	}
	query, err := url.ParseQuery(u.query)
	for name, values := range query {
		if !slices.Contains([]string{"cacert", "cert", "key"}, name) || len(values) != 1 || values[0] == "" {
			err = url.EscapeError(name)
		}
	}
	if err != nil || query.Has("cert") != query.Has("key") {
		return "can have no query but ?cacert=FILE and &cert=FILE&key=FILE"
	}
	return ""
}

func unixRedisRule(u storeURL) string {
	db, named := strings.CutPrefix(u.query, "db=")
	switch {
	case len(u.hosts) > 0 || len(u.path) < 2:
		return "must be unix:// and an absolute path, such as unix:///run/redis.sock"
	case u.query != "" && (!named || !databaseText(db)):
		return "can have no query but ?db=0"
	}
	return ""
}

// databaseText reports whether s is the number of a Redis database, or absent.
func databaseText(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && allDigits(s)
}

// hostsRule: at least one host, each with or without a port.
func hostsRule(hosts []string) string {
	for _, h := range hosts {
		u, err := url.Parse("//" + h)
		if err != nil || !hostText(u.Hostname()) || strings.HasSuffix(h, ":") || u.Port() != "" && !portText(u.Port()) {
			return "must name hosts as host:port"
		}
	}
	if len(hosts) == 0 {
		return "must name a host"
	}
	return ""
}

// postgresRule: postgres://user@host:port/database. A query holds the driver's own settings.
func postgresRule(s string) string {
	u, ok := splitStoreURL(s)
	switch {
	case !ok || u.scheme != "postgres" && u.scheme != "postgresql":
		return "must be a URL such as postgres://tollgate@127.0.0.1:5432/tollgate"
	case len(u.path) < 2:
		return "must name a database"
	}
	return hostsRule(u.hosts)
}

// url stores a URL, which may be given as env:NAME or file:PATH.
func (s *section) url(name string, into *string, check rule) {
	n := s.get(name)
	if n == nil {
		return
	}
	text, ok := s.d.sensitive(n)
	if !ok {
		return
	}
	if wrong := check(text); wrong != "" {
		s.d.fail(n, "%s", wrong)
		return
	}
	*into = text
}
