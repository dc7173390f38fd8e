package usage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseChatUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, object string
		want         Usage
		ok           bool
	}{
		{"plain", `{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}`, Usage{Input: 7, Output: 5}, true},
		{"zero is a value", `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, Usage{}, true},
		{"empty", `{}`, Usage{}, false},
		{"no count we know", `{"cost":0.2,"prompt_tokens":null}`, Usage{}, false},
		{"details", `{"prompt_tokens":3000,"completion_tokens":10,"total_tokens":3010,
			"prompt_tokens_details":{"cached_tokens":1000,"cache_write_tokens":1500},"completion_tokens_details":{"reasoning_tokens":4}}`,
			Usage{Input: 3000, CacheRead: 1000, CacheWrite: 1500, Output: 10, Reasoning: 4}, true},
		{"details null", `{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":null,"completion_tokens_details":null}`,
			Usage{Input: 3, Output: 1}, true},
		{"deepseek", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"prompt_cache_hit_tokens":64}`,
			Usage{Input: 100, CacheRead: 64, Output: 50}, true},
		{"deepseek, both names", `{"prompt_cache_hit_tokens":64,"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":0}}`,
			Usage{Input: 100}, true},
		{"sglang", `{"prompt_tokens":30,"completion_tokens":20,"total_tokens":50,"reasoning_tokens":12}`,
			Usage{Input: 30, Output: 20, Reasoning: 12}, true},
		{"xai, reasoning outside", `{"prompt_tokens":100,"completion_tokens":10,"total_tokens":410,
			"completion_tokens_details":{"reasoning_tokens":300}}`, Usage{Input: 100, Output: 310, Reasoning: 300}, true},
		{"reasoning inside", `{"prompt_tokens":100,"completion_tokens":310,"total_tokens":410,
			"completion_tokens_details":{"reasoning_tokens":300}}`, Usage{Input: 100, Output: 310, Reasoning: 300}, true},
		{"completion null", `{"prompt_tokens":9,"total_tokens":12,"completion_tokens":null}`, Usage{Input: 9, Output: 3}, true},
		{"only total", `{"total_tokens":12}`, Usage{Input: 12}, true},
		{"floats", `{"prompt_tokens":9.0,"completion_tokens":1e2}`, Usage{Input: 9, Output: 100}, true},
		{"strings are no counts", `{"prompt_tokens":"9","completion_tokens":2}`, Usage{Output: 2}, true},
		{"negative", `{"prompt_tokens":-9,"completion_tokens":-1,"total_tokens":-10,"prompt_tokens_details":{"cached_tokens":-5}}`,
			Usage{}, true},
		{"negative beside true ones", `{"prompt_tokens":9,"completion_tokens":-1e300,"total_tokens":5}`, Usage{Input: 9}, true},
		{"absurd", `{"prompt_tokens":99999999999999999999,"completion_tokens":1e400}`, Usage{Input: MaxTokens, Output: MaxTokens}, true},
		{"more cached than there is", `{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":5}}`,
			Usage{Input: 65, CacheRead: 60, CacheWrite: 5, Output: 1}, true},
		{"more reasoning than output", `{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11,"reasoning_tokens":7}`,
			Usage{Input: 10, Output: 7, Reasoning: 7}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := parseChatUsage([]byte(tt.object))
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != tt.ok {
				t.Errorf("ok = %t, want %t%s", ok, tt.ok, diff)
			}
		})
	}
}
