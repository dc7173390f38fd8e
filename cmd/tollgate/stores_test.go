package main

import (
	"log/slog"
	"testing"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// TestCacheURL: a cache that is where the counters are shares their backend, and so their pipeline; another has its own.
func TestCacheURL(t *testing.T) {
	t.Parallel()
	one, other := redistest.Start(t), redistest.Start(t)
	for _, tt := range []struct {
		name, cacheURL string
		shared         bool
	}{
		{"none", "", true},
		{"the same", one.URL(), true},
		{"the same, otherwise written", "redis://" + one.Addr(), true},
		{"another database", "redis://" + one.Addr() + "/1", false},
		{"another server", other.URL(), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			cfg.Redis.URL, cfg.Redis.CacheURL = one.URL(), tt.cacheURL
			a := &app{cfg: cfg, log: slog.New(slog.DiscardHandler)}
			if err := a.openStores(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = a.closeStores() })
			if (a.cache == a.backend) != tt.shared {
				t.Errorf("one backend for both: %t, want %t", a.cache == a.backend, tt.shared)
			}
			for name, b := range map[string]*pipeline.Backend{"counters": a.backend, "cache": a.cache} {
				if err := b.Ping(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}
