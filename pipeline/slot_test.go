package pipeline

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// The values of the Redis Cluster specification, and what CLUSTER KEYSLOT says of its examples of hash tags.
func TestSlotOfKnownKeys(t *testing.T) {
	t.Parallel()
	tests := []struct {
		key  string
		want uint16
	}{
		{"123456789", 0x31C3},
		{"", 0},
		{"foo", 12182},
		{"bar", 5061},
		{"{foo}", 12182},
		{"foo{bar}baz", 5061},
		{"foo{bar}{zap}", 5061},
		{"foo{{bar}}zap", 4015}, // the tag is "{bar"
		{"foo{}{bar}", 8363},    // an empty tag is none
		{"foo{bar", 15278},
		{"{user1000}.following", 3443},
		{"{user1000}.followers", 3443},
	}
	for _, test := range tests {
		if got := slot(test.key); got != test.want {
			t.Errorf("slot(%q) = %d, want %d", test.key, got, test.want)
		}
	}
}

func TestSlotIsTheServers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	part := rapid.OneOf(rapid.SampledFrom([]string{"{", "}", "{}", "{a}", "\x00", ""}), rapid.StringN(0, 5, 20))
	rapid.Check(t, func(t *rapid.T) {
		key := ""
		for _, s := range rapid.SliceOfN(part, 1, 8).Draw(t, "parts") {
			key += s
		}
		want, err := server.Client().ClusterKeySlot(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got := slot(key); int64(got) != want {
			t.Fatalf("slot(%q) = %d, the server says %d", key, got, want)
		}
	})
}
