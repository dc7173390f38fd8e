package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
)

func TestSwitchLeavesOpenConnectionsWithAReplica(t *testing.T) {
	t.Parallel()
	redistest.Kinds(t, func(t *testing.T, kind redistest.Kind) {
		t.Parallel()
		r := redistest.StartReplicated(t, redistest.On(kind))
		first, second := r.Master, r.Replica
		old := client(t, r.Proxy.Addr())
		set(t, old, "n", "1")
		r.Switch()
		if r.Master != second || r.Replica != first {
			t.Error("the servers have not changed places")
		}
		if err := old.Incr(t.Context(), "n").Err(); !redis.HasErrorPrefix(err, "READONLY") {
			t.Errorf("INCR on the open connection: error is %v, want READONLY", err)
		}
		fresh := client(t, r.Proxy.Addr())
		if n, err := fresh.Incr(t.Context(), "n").Result(); err != nil || n != 2 {
			t.Errorf("INCR on a new connection = %d, %v; want 2", n, err)
		}
		r.Switch()
		if r.Master != first || get(t, first.Client(), "n") != "2" {
			t.Error("the first server has not become the master again with all data")
		}
		r.Replica.Restart()
		if err := r.Replica.Client().Set(t.Context(), "n", "3", 0).Err(); !redis.HasErrorPrefix(err, "READONLY") {
			t.Errorf("SET at a restarted replica: error is %v, want READONLY: it has not forgotten that it is one", err)
		}
	})
}

func TestSwitchFromADeadMaster(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	c := client(t, r.Proxy.Addr())
	set(t, c, "n", "1")
	if err := c.Wait(t.Context(), 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.Master.Kill()
	if err := c.Incr(t.Context(), "n").Err(); err == nil {
		t.Error("INCR without a master has no error")
	}
	r.Switch()
	if n, err := c.Incr(t.Context(), "n").Result(); err != nil || n != 2 {
		t.Errorf("INCR after the switch = %d, %v; want 2", n, err)
	}
}
