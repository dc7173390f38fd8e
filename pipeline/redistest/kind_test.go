package redistest

import (
	"strings"
	"testing"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	want := map[Kind]string{
		Redis:   "redis_version:",
		Valkey8: "valkey_version:8.1.8",
		Valkey9: "valkey_version:9.1.2",
	}
	ran := make(chan Kind, len(want))
	t.Run("all", func(t *testing.T) {
		Kinds(t, func(t *testing.T, kind Kind) {
			t.Parallel()
			ran <- kind
			server := kind.Start(t, "--maxmemory", "7mb")
			info, err := server.Client().Info(t.Context(), "server", "memory").Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{want[kind], "\nmaxmemory:7340032\r"} {
				if !strings.Contains(info, line) {
					t.Errorf("INFO has no %q:\n%s", line, info)
				}
			}
			if kind == Redis && strings.Contains(info, "valkey") {
				t.Errorf("redis-server is a Valkey:\n%s", info)
			}
		})
	})
	if len(ran) != len(want) {
		t.Errorf("%d kinds ran, want %d", len(ran), len(want))
	}
}

// TestMissingBinary sets variables of the process, so it runs alone.
func TestMissingBinary(t *testing.T) {
	tests := []struct {
		name     string
		kind     Kind
		variable string
		value    string
		want     string
	}{
		{name: "no variable", kind: Valkey8, variable: "TOLLGATE_VALKEY8", want: `TOLLGATE_VALKEY8 is not set: run make test, or eval "$(make -s env)"`},
		{name: "no other variable", kind: Valkey9, variable: "TOLLGATE_VALKEY9", want: `TOLLGATE_VALKEY9 is not set: run make test, or eval "$(make -s env)"`},
		{name: "no such file", kind: Valkey9, variable: "TOLLGATE_VALKEY9", value: "/nowhere/valkey", want: `TOLLGATE_VALKEY9 names no server`},
		{name: "no redis-server", kind: Redis, variable: "PATH", want: "redis-server is not in PATH"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(test.variable, test.value)
			path, err := test.kind.binary()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("binary() = %q, %v; want an error with %q", path, err, test.want)
			}
		})
	}
}
