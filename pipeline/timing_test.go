package pipeline

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// scripted is a server without a network, for tests whose clock is their own. It says OK to everything, when it is told
// to.
type scripted struct {
	mu      sync.Mutex
	begun   time.Time
	refuses bool
	silent  bool
	delay   time.Duration
	dials   []time.Duration // when it was dialled
	asked   []time.Duration // when a command came
}

func (s *scripted) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// seen says when it was dialled, and when commands came.
func (s *scripted) seen() (dials, asked []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials, s.asked
}

func (s *scripted) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials = append(s.dials, time.Since(s.begun))
	if s.refuses {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	ours, other := net.Pipe()
	go s.serve(other)
	return ours, nil
}

func (s *scripted) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		name, err := command(in)
		if err != nil {
			return
		}
		if strings.EqualFold(name, "hello") {
			if _, err := io.WriteString(c, "-ERR unknown command\r\n"); err != nil {
				return
			}
			continue
		}
		s.mu.Lock()
		s.asked = append(s.asked, time.Since(s.begun))
		silent, delay := s.silent, s.delay
		s.mu.Unlock()
		if silent {
			continue
		}
		time.Sleep(delay)
		if _, err := io.WriteString(c, "+OK\r\n"); err != nil {
			return
		}
	}
}

// command reads a command whole and returns its name.
func command(in *bufio.Reader) (string, error) {
	line := func() (int, error) {
		text, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(text[1:]))
	}
	words, err := line()
	name := ""
	for i := 0; i < words && err == nil; i++ {
		var size int
		if size, err = line(); err != nil {
			break
		}
		word := make([]byte, size+2)
		if _, err = io.ReadFull(in, word); i == 0 {
			name = string(word[:size])
		}
	}
	return name, err
}

// withClock runs a test against a scripted server, at a deadline of 100 ms, on a clock of its own.
func withClock(t *testing.T, test func(*testing.T, *scripted, *Backend)) {
	synctest.Test(t, func(t *testing.T) {
		silence()
		server := &scripted{begun: time.Now()}
		s := &settings{deadline: 100 * time.Millisecond, maxValue: 1 << 20, keepLate: true}
		s.connect = func(addr string) *redis.Client {
			o := (&target{network: "tcp"}).options(addr, server.dial, poolSize)
			o.PoolTimeout = s.deadline
			return redis.NewClient(o)
		}
		b := &Backend{settings: s, one: newNode(s, "redis.example:6379")}
		test(t, server, b)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Opening does no I/O, and neither does a new connection pool in the midst of a trip: go-redis must not look the host up.
func TestOpenLooksNothingUp(t *testing.T) {
	t.Parallel()
	b, err := Open(Options{URL: "redis://redis.example"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if got := b.one.client.Load().Options().MaintNotificationsConfig.Mode; got != maintnotifications.ModeDisabled {
		t.Errorf("maintenance notifications are %s", got)
	}
}

// timed asks once and says how long that took.
func timed(b *Backend) (time.Duration, error) {
	from := time.Now()
	_, err := Declare(b.Batch("r"), "o", Raw, "PING").Get(context.Background())
	return time.Since(from), err
}

func TestDeadlineAndBreakerToTheMillisecond(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, server *scripted, b *Backend) {
		expect := func(when string, took time.Duration, fails bool) {
			t.Helper()
			got, err := timed(b)
			if got != took || errors.Is(err, ErrUnavailable) != fails || !fails && err != nil {
				t.Errorf("%s: %v after %s, want %s", when, err, got, took)
			}
		}
		expect("at first", 0, false)
		server.set(func() { server.delay = 99 * time.Millisecond })
		expect("just in time", 99*time.Millisecond, false)
		server.set(func() { server.silent = true })
		for range 3 {
			if !b.Answering() {
				t.Error("the breaker is open too early")
			}
			expect("silent", 100*time.Millisecond, true)
		}
		for round := range 4 {
			if b.Answering() {
				t.Error("the breaker is closed")
			}
			for range 100 {
				expect("behind the breaker", 0, true)
			}
			pause := 250 * time.Millisecond
			if round > 0 {
				pause -= 100 * time.Millisecond // it counts from the beginning of the last probe
			}
			time.Sleep(pause - time.Millisecond)
			expect("before the pause is over", 0, true)
			time.Sleep(time.Millisecond)
			expect("the probe", 100*time.Millisecond, true)
		}
		server.set(func() { server.silent, server.delay = false, 0 })
		time.Sleep(250 * time.Millisecond)
		expect("the probe that is answered", 0, false)
		expect("afterwards", 0, false)
		if !b.Answering() {
			t.Error("the breaker stays open")
		}
		time.Sleep(patience) // the late trips end
	})
}

// One caller in each pause tests the server, however many there are.
func TestOneProbeAtATime(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, server *scripted, b *Backend) {
		server.set(func() { server.silent = true })
		for range 3 {
			_, _ = timed(b)
		}
		var waited atomic.Int64
		var wg sync.WaitGroup
		from := time.Now()
		for range 50 {
			wg.Go(func() {
				for time.Since(from) < 5*time.Second {
					took, err := timed(b)
					switch {
					case !errors.Is(err, ErrUnavailable):
						t.Errorf("a silent server answers: %v", err)
					case took == 100*time.Millisecond:
						waited.Add(1)
					case took != 0:
						t.Errorf("a caller waited %s", took)
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if n := waited.Load(); n < 19 || n > 20 { // 250 ms, and up to 10 until the next caller comes
			t.Errorf("%d callers waited within 5 s, want one in each pause of 250 ms", n)
		}
		time.Sleep(patience)
	})
}

// A reply reaches Late once while its trip is listened to, and not at all afterwards.
func TestLateToTheMillisecond(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, server *scripted, b *Backend) {
		for _, test := range []struct {
			delay time.Duration
			late  []time.Duration
		}{
			{99 * time.Millisecond, nil},
			{101 * time.Millisecond, []time.Duration{101 * time.Millisecond}},
			{5 * time.Second, []time.Duration{5 * time.Second}},
			{100*time.Millisecond + patience - time.Millisecond, []time.Duration{100*time.Millisecond + patience - time.Millisecond}},
			{100*time.Millisecond + patience + time.Millisecond, nil},
			{time.Minute, nil},
		} {
			server.set(func() { server.delay = test.delay })
			from := time.Now()
			var late []time.Duration
			h := Declare(b.Batch("r"), "o", Raw, "PING")
			h.Late(func(any) { late = append(late, time.Since(from)) }) // before synctest.Wait returns
			_, err := h.Get(context.Background())
			if want := min(test.delay, 100*time.Millisecond); time.Since(from) != want || (err == nil) != (test.delay < want+1) {
				t.Errorf("delay %s: %v after %s", test.delay, err, time.Since(from))
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if diff := cmp.Diff(test.late, late); diff != "" {
				t.Errorf("delay %s: late replies (-want +got):\n%s", test.delay, diff)
			}
		}
	})
}

// The pauses between the attempts of a flush, and the end of one that is not answered.
func TestPausesOfFlushes(t *testing.T) {
	t.Parallel()
	ms := func(list ...int) (all []time.Duration) {
		for _, n := range list {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	once := NewOnce("once", `return 1`)
	write := func(d *Deferred) {
		w := d.Writes()
		w.Once("o", once, []string{"w"})
		w.Close()
	}
	end := func(t *testing.T, d *Deferred) {
		t.Helper()
		if left, lost := d.Drain(context.Background()); left != 0 || lost != 0 {
			t.Errorf("%d left, %d lost", left, lost)
		}
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		withClock(t, func(t *testing.T, server *scripted, b *Backend) {
			d := NewDeferred(b, DeferredOptions{})
			server.set(func() { server.refuses = true })
			write(d)
			time.Sleep(3 * time.Second)
			server.set(func() { server.refuses = false })
			end(t, d)
			dials, _ := server.seen()
			if diff := cmp.Diff(ms(0, 10, 30, 70, 150, 310, 630, 1270, 2270, 3270), dials); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		withClock(t, func(t *testing.T, server *scripted, b *Backend) {
			d := NewDeferred(b, DeferredOptions{})
			server.set(func() { server.silent = true })
			write(d)
			time.Sleep(11 * time.Second)
			server.set(func() { server.silent = false })
			end(t, d)
			_, asked := server.seen()
			if diff := cmp.Diff(ms(0, 5010, 10030, 15070), asked); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
		})
	})
}

// A Writes that nobody closes is handed on between its deadline and a quarter later.
func TestDeadlineOfWrites(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{0, 100 * time.Millisecond, 249 * time.Millisecond} {
		withClock(t, func(t *testing.T, server *scripted, b *Backend) {
			d := NewDeferred(b, DeferredOptions{})
			time.Sleep(age)
			d.Writes().Do("o", "SET", "x", "1")
			time.Sleep(3 * time.Second)
			_, asked := server.seen()
			if len(asked) != 1 || asked[0]-age < time.Second || asked[0]-age > 1250*time.Millisecond {
				t.Errorf("opened at %s: it left at %v", age, asked)
			}
			if left, lost := d.Drain(context.Background()); left != 0 || lost != 0 {
				t.Errorf("%d left, %d lost", left, lost)
			}
		})
	}
}
