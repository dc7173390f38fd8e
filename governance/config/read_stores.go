package config

import "time"

func (d *decoder) redis(s *section) {
	r := &d.cfg.Redis
	s.url("url", &r.URL, redisRule)
	s.text("username", &r.Username, textRule)
	s.secret("password", &r.Password)
	s.url("cache_url", &r.CacheURL, redisRule)
	s.text("prefix", &r.Prefix, prefixRule)
	s.duration("deadline", &r.Deadline, time.Millisecond, 10*time.Second)
	oneOf(s, "scripts", &r.Scripts, "evalsha", "eval")
	inside(s, "on_failure", func(f *section) {
		oneOf(f, "budgets", &r.OnFailure.Budgets, "deny", "local", "allow")
		oneOf(f, "rates", &r.OnFailure.Rates, "deny", "local", "allow")
		oneOf(f, "cache", &r.OnFailure.Cache, "miss", "deny")
		oneOf(f, "unknown_key", &r.OnFailure.UnknownKey, "deny", "local", "allow")
	})
	s.credentialsOnce("url", r.URL, r.Username, r.Password)
	if s.n.get("url") == nil {
		for _, name := range []string{"username", "password", "cache_url"} {
			if n := s.n.get(name); n != nil {
				d.warn(n, "has no effect without redis.url: counters live in the process")
			}
		}
	}
}

// credentialsOnce refuses a user or password that stands both in the URL and beside it: nobody can see which one counts.
func (s *section) credentialsOnce(name, address, username, password string) {
	u, ok := splitStoreURL(address)
	if !ok {
		return
	}
	if u.username != "" && username != "" {
		s.d.fail(s.n.get("username"), "the %s names a user too; one of the two must go", name)
	}
	if u.password != "" && password != "" {
		s.d.fail(s.n.get("password"), "the %s holds a password too; one of the two must go", name)
	}
}

func (d *decoder) postgres(s *section) {
	p := &Postgres{Migrate: true}
	if s.require("url") != nil {
		s.url("url", &p.URL, postgresRule)
	}
	s.secret("password", &p.Password)
	s.boolean("migrate", &p.Migrate)
	s.credentialsOnce("url", p.URL, "", p.Password)
	d.cfg.Postgres = p
}

func (d *decoder) journal(s *section) {
	j := &Journal{Max: 1 << 30, Fsync: 100 * time.Millisecond}
	if n := s.require("dir"); n != nil {
		if dir, ok := d.ruled(n, textRule); ok {
			j.Dir = n.path(dir)
		}
	}
	s.bytes("max", &j.Max, 1<<20, maxCount)
	s.duration("fsync", &j.Fsync, 0, time.Minute)
	d.cfg.Journal = j
}
