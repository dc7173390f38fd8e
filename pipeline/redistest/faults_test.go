package redistest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func isIncr(cmd []string) bool { return cmd[0] == "incr" }

func TestCutAfterExecutesAndLosesTheReply(t *testing.T) {
	t.Parallel()
	server, proxy, client := counted(t)
	proxy.CutAfter(isIncr)
	set(t, client, "n", "0")
	if err := client.Incr(t.Context(), "n").Err(); err == nil {
		t.Error("INCR with a lost reply has no error")
	}
	if got := get(t, server.Client(), "n"); got != "1" {
		t.Errorf("n = %s, want 1: the server had executed it", got)
	}
	if err := client.Incr(t.Context(), "n").Err(); err != nil {
		t.Errorf("the second INCR: %v: a cut holds for one command", err)
	}
	trips := proxy.Trips()
	if len(trips) != 3 || trips[1].Done || !trips[2].Done {
		t.Errorf("trips are %+v, want the second of three not done", trips)
	}
}

func TestCutAfterPassesEarlierReplies(t *testing.T) {
	t.Parallel()
	_, proxy, client := counted(t)
	proxy.CutAfter(isIncr)
	var first *redis.StatusCmd
	var second *redis.IntCmd
	_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		first = pipe.Set(t.Context(), "n", "5", 0)
		second = pipe.Incr(t.Context(), "n")
		return nil
	})
	if err == nil || second.Err() == nil {
		t.Errorf("pipeline error %v, INCR error %v; want both", err, second.Err())
	}
	if first.Val() != "OK" {
		t.Errorf("SET before the cut = %q, want OK", first.Val())
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	_, proxy, client := counted(t)
	const delay, commands = 200 * time.Millisecond, 20
	proxy.Delay(delay)
	begun := time.Now()
	_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for range commands {
			pipe.Incr(t.Context(), "a")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < delay || took > commands*delay/2 {
		t.Errorf("a delayed pipeline of %d commands took %v, want one delay of %v", commands, took, delay)
	}
	proxy.Delay(0)
	begun = time.Now()
	for range commands {
		get(t, client, "a")
	}
	if took := time.Since(begun); took > commands*delay/2 {
		t.Errorf("%d commands took %v without a delay", commands, took)
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	server, proxy, client := counted(t)
	proxy.Refuse(true)
	for range 2 {
		if err := client.Incr(t.Context(), "n").Err(); err == nil {
			t.Error("INCR at a proxy that refuses has no error")
		}
	}
	if got := get(t, server.Client(), "n"); got != "" {
		t.Errorf("n = %s, want nothing executed", got)
	}
	proxy.Refuse(false)
	if err := client.Incr(t.Context(), "n").Err(); err != nil {
		t.Errorf("INCR afterwards: %v", err)
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	server, proxy, client := counted(t)
	proxy.Stall(true)
	proxy.Stall(true)
	if err := incr(t, client, "n"); !isTimeout(err) {
		t.Errorf("INCR in a stall: error is %v, want a timeout", err)
	}
	if got := get(t, server.Client(), "n"); got != "" {
		t.Errorf("n = %s in the stall, want nothing executed", got)
	}
	proxy.Stall(false)
	proxy.Stall(false)
	for deadline := time.Now().Add(5 * time.Second); get(t, server.Client(), "n") != "1"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was held in the stall never arrived")
		}
	}
	if err := client.Incr(t.Context(), "n").Err(); err != nil {
		t.Errorf("INCR afterwards: %v", err)
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	server, proxy, before := counted(t)
	for range 2 {
		if err := proxy.Listen(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := before.Incr(t.Context(), "n").Err(); err == nil {
		t.Error("INCR where nobody listens has no error")
	}
	if conn, err := net.Dial("tcp", proxy.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a dial: %v, %v; want it refused", conn, err)
	}
	for range 2 {
		if err := proxy.Listen(true); err != nil {
			t.Fatal(err)
		}
	}
	// Another client: the first one remembers for a second that nobody listened.
	if err := client(t, proxy.Addr()).Incr(t.Context(), "n").Err(); err != nil {
		t.Errorf("INCR afterwards: %v", err)
	}
	if got := get(t, server.Client(), "n"); got != "1" {
		t.Errorf("n = %s, want 1", got)
	}
}

func TestStrand(t *testing.T) {
	t.Parallel()
	server, proxy, stranded := counted(t)
	proxy.Strand()
	if err := incr(t, stranded, "n"); !isTimeout(err) {
		t.Errorf("INCR on a stranded connection: error is %v, want a timeout", err)
	}
	fresh := client(t, proxy.Addr())
	if n, err := fresh.Incr(t.Context(), "n").Result(); err != nil || n != 1 {
		t.Errorf("INCR on a new connection = %d, %v; want 1: the first never arrived", n, err)
	}
	if trips := proxy.Trips(); len(trips) != 2 || trips[0].Done || !trips[1].Done {
		t.Errorf("trips are %+v, want the first of two not done", trips)
	}
	if got := get(t, server.Client(), "n"); got != "1" {
		t.Errorf("n = %s, want 1", got)
	}
}

func TestStrandHidesTheEndOfTheOtherSide(t *testing.T) {
	t.Parallel()
	server, proxy, _ := counted(t)
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reply := make([]byte, 16)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(reply); err != nil {
		t.Fatal(err)
	}
	proxy.Strand()
	server.Kill()
	if err := conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(reply); !isTimeout(err) {
		t.Errorf("a read after the server's death = %d bytes, %v; want a timeout", n, err)
	}
}

func TestUpstreamGone(t *testing.T) {
	t.Parallel()
	server, proxy, client := counted(t)
	server.Kill()
	if err := client.Incr(t.Context(), "n").Err(); err == nil {
		t.Error("INCR without an upstream has no error")
	}
	server.Restart()
	if err := client.Incr(t.Context(), "n").Err(); err != nil {
		t.Errorf("INCR after the restart: %v", err)
	}
	if got := proxy.Connections(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}
