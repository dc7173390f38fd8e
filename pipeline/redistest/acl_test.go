package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// as is a client of the server under a user's name.
func as(t *testing.T, server *redistest.Server, user redistest.User) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(server.URLAs(user))
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(options)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestUsers(t *testing.T) {
	t.Parallel()
	redistest.Kinds(t, func(t *testing.T, kind redistest.Kind) {
		t.Parallel()
		limited := redistest.User{
			Name: "tollgate", Password: "p@ss/word", Rules: []string{"~tg:*", "&*", "+@all", "-script", "-evalsha"},
		}
		anybody := redistest.User{Name: "reader", Rules: []string{"~*", "+get"}}
		server := kind.Start(t, redistest.Users(limited, anybody)...)

		c := as(t, server, limited)
		set(t, c, "tg:k", "v")
		for _, cmd := range [][]any{{"SCRIPT", "LOAD", "return 1"}, {"EVALSHA", "0000000000000000000000000000000000000000", 0}, {"SET", "k", "v"}} {
			if err := c.Do(t.Context(), cmd...).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
				t.Errorf("%v: error is %v, want NOPERM", cmd, err)
			}
		}
		if got, err := c.Eval(t.Context(), "return 7", nil).Int(); err != nil || got != 7 {
			t.Errorf("EVAL = %d, %v; want 7", got, err)
		}
		wrong := limited
		wrong.Password = "guess"
		if err := as(t, server, wrong).Ping(t.Context()).Err(); !redis.HasErrorPrefix(err, "WRONGPASS") {
			t.Errorf("a wrong password: error is %v, want WRONGPASS", err)
		}
		anybody.Password = "any"
		if got := get(t, as(t, server, anybody), "tg:k"); got != "v" {
			t.Errorf("GET without a password = %q, want v", got)
		}
		set(t, server.Client(), "k", "the default user may")
	})
}

func TestDefaultUserWithPassword(t *testing.T) {
	t.Parallel()
	admin := redistest.User{Name: "default", Password: "secret", Rules: []string{"~*", "&*", "+@all"}}
	server := redistest.Start(t, redistest.Users(admin)...)
	if err := server.Client().Ping(t.Context()).Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("PING without a password: error is %v, want NOAUTH", err)
	}
	set(t, as(t, server, admin), "k", "v")
}
