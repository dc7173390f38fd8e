package redistest_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

// asking sends a command after ASKING, in one pipeline.
func asking(t *testing.T, c *redis.Client, args ...any) *redis.Cmd {
	t.Helper()
	pipe := c.Pipeline()
	pipe.Do(t.Context(), "ASKING")
	cmd := pipe.Do(t.Context(), args...)
	_, _ = pipe.Exec(t.Context()) // the command has its own error
	return cmd
}

func TestMoveHoldsASlotHalfMoved(t *testing.T) {
	t.Parallel()
	redistest.Kinds(t, func(t *testing.T, kind redistest.Kind) {
		t.Parallel()
		c := redistest.StartCluster(t, redistest.On(kind), redistest.Proxied)
		from := c.MasterOf("{u}1")
		to := c.Nodes[0]
		if to == from {
			to = c.Nodes[1]
		}
		source, target := client(t, from.Addr()), client(t, to.Addr())
		set(t, source, "{u}1", "one")
		set(t, source, "{u}2", "two")
		slot := c.SlotOf("{u}1")
		ask, moved := fmt.Sprintf("ASK %d %s", slot, to.Addr()), fmt.Sprintf("MOVED %d %s", slot, from.Addr())

		m := c.Move(slot, to)
		m.Migrate("{u}1")
		for name, reply := range map[string]struct {
			cmd  *redis.Cmd
			want string
		}{
			"a key that has moved":               {cmd: source.Do(t.Context(), "GET", "{u}1"), want: ask},
			"a key that has not":                 {cmd: source.Do(t.Context(), "GET", "{u}2"), want: "two"},
			"a key that is not":                  {cmd: source.Do(t.Context(), "SET", "{u}3", "x"), want: ask},
			"both keys":                          {cmd: source.Do(t.Context(), "MGET", "{u}1", "{u}2"), want: "TRYAGAIN Multiple keys request during rehashing of slot"},
			"the target, not asked to":           {cmd: target.Do(t.Context(), "GET", "{u}1"), want: moved},
			"the target, asked for what it has":  {cmd: asking(t, target, "GET", "{u}1"), want: "one"},
			"the target, asked for what it will": {cmd: asking(t, target, "MGET", "{u}1", "{u}2"), want: "TRYAGAIN Multiple keys request during rehashing of slot"},
		} {
			got, err := reply.cmd.Text()
			if err != nil {
				got = err.Error()
			}
			if got != reply.want {
				t.Errorf("%s: %q, want %q", name, got, reply.want)
			}
		}
		if diff := cmp.Diff([]string{"{u}2"}, m.Keys(10)); diff != "" {
			t.Errorf("keys that are left (-want +got):\n%s", diff)
		}

		m.Finish()
		if c.MasterOf("{u}1") != to {
			t.Error("the slot has not its new owner")
		}
		if got := get(t, target, "{u}1") + get(t, target, "{u}2"); got != "onetwo" {
			t.Errorf("the keys at their new owner are %q", got)
		}
		want := fmt.Sprintf("MOVED %d %s", slot, to.Addr())
		if err := source.Get(t.Context(), "{u}1").Err(); err == nil || err.Error() != want {
			t.Errorf("GET at the old owner: error is %v, want %s", err, want)
		}
	})
}

func TestReshard(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	from, to := c.Nodes[2], c.Nodes[0]
	const keys = 300
	var slots []int
	for i := range keys {
		key := fmt.Sprintf("{a}%d", i)
		if i%3 == 0 {
			key = fmt.Sprint(i)
		}
		if err := c.Client().Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for slot := 15400; slot < 15600; slot++ { // {a} is in 15495
		slots = append(slots, slot)
	}
	c.Reshard(from, to, slots...)
	for _, slot := range []int{15400, 15495, 15599} {
		if c.OwnerOf(slot) != to {
			t.Errorf("slot %d has not moved", slot)
		}
	}
	for _, slot := range []int{15399, 15600} {
		if c.OwnerOf(slot) != from {
			t.Errorf("slot %d has moved", slot)
		}
	}
	for i := range keys {
		key := fmt.Sprintf("{a}%d", i)
		if i%3 == 0 {
			key = fmt.Sprint(i)
		}
		if got, err := c.Client().Get(t.Context(), key).Int(); err != nil || got != i {
			t.Fatalf("GET %s = %d, %v; want %d", key, got, err, i)
		}
	}
}
