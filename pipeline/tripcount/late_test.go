package tripcount

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// line is a late reader, what is written at its other end, and the time since it was made.
type line struct {
	*late
	far    net.Conn
	faults faults
	ended  chan struct{}
	begun  time.Time
}

// newLine makes one inside a bubble, where time is exact. Both of its ends are closed when the test ends.
func newLine(t *testing.T, delay time.Duration) *line {
	near, far := net.Pipe()
	l := &line{far: far, faults: faults{delay: delay}, ended: make(chan struct{}), begun: time.Now()}
	var fill sync.WaitGroup
	l.late = &late{conn: near, faults: &l.faults, done: l.ended, start: fill.Go, more: make(chan struct{}, 1)}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
		fill.Wait()
	})
	return l
}

// write sends pieces, one after the other, and fails when one has to wait: late reads on while a delay lasts.
func (l *line) write(t *testing.T, pieces ...string) {
	t.Helper()
	for _, p := range pieces {
		at := time.Now()
		if _, err := l.far.Write([]byte(p)); err != nil {
			t.Error(err)
		}
		if took := time.Since(at); took != 0 {
			t.Errorf("%q had to wait for %v", p, took)
		}
	}
}

// arrival is what one read found, and when.
type arrival struct {
	Text string
	At   time.Duration
}

// read reads until want bytes are there.
func (l *line) read(t *testing.T, want int) []arrival {
	t.Helper()
	var list []arrival
	buffer := make([]byte, 64)
	for want > 0 {
		n, err := l.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, arrival{string(buffer[:n]), time.Since(l.begun)})
		want -= n
	}
	return list
}

// A pipeline's replies come in pieces: each is as late as the first, and none waits for another's delay.
func TestLateDelaysEachPieceAlike(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, time.Second)
		go func() {
			l.write(t, "a", "b", "c")
			time.Sleep(300 * time.Millisecond)
			l.write(t, "d", "e")
			time.Sleep(900 * time.Millisecond) // "a" has arrived
			l.write(t, "f")
		}()
		got := l.read(t, 6)
		want := []arrival{{"a", time.Second}, {"bc", time.Second}, {"de", 1300 * time.Millisecond}, {"f", 2200 * time.Millisecond}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("arrivals (-want +got):\n%s", d)
		}
	})
}

func TestLateFollowsTheDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 0)
		go func() {
			l.write(t, "at once")
			time.Sleep(time.Second)
			l.faults.mu.Lock()
			l.faults.delay = 50 * time.Millisecond
			l.faults.mu.Unlock()
			l.write(t, "late")
			time.Sleep(time.Second)
			l.faults.mu.Lock()
			l.faults.delay = 0
			l.faults.mu.Unlock()
			l.write(t, "again")
		}()
		want := []arrival{{"at once", 0}, {"late", 1050 * time.Millisecond}, {"again", 2 * time.Second}}
		if d := cmp.Diff(want, l.read(t, len("at oncelateagain"))); d != "" {
			t.Errorf("arrivals (-want +got):\n%s", d)
		}
	})
}

func TestLateKeepsWhatIsLongerThanARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, time.Second)
		go l.write(t, "x", "0123456789", "ab")
		l.read(t, 1)
		var got []string
		for _, size := range []int{4, 4, 4} {
			buffer := make([]byte, size)
			n, err := l.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(buffer[:n]))
		}
		if d := cmp.Diff([]string{"0123", "4567", "89ab"}, got); d != "" {
			t.Errorf("reads (-want +got):\n%s", d)
		}
	})
}

// What was sent before the end still arrives.
func TestLateEndsAfterTheLastPiece(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, time.Second)
		go func() {
			l.write(t, "a", "b")
			_ = l.far.Close()
		}()
		got := l.read(t, 2)
		if _, err := l.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || len(got) != 2 {
			t.Errorf("arrivals %v, then error %v", got, err)
		}
	})
}

// A proxy that is closed waits for no delay.
func TestLateEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, time.Hour)
		go func() {
			l.write(t, "a")
			time.Sleep(time.Second)
			close(l.ended)
		}()
		got := l.read(t, 1)
		_, err := l.Read(make([]byte, 1))
		if took := time.Since(l.begun); took != time.Second || len(got) != 1 || !errors.Is(err, io.EOF) {
			t.Errorf("after %v: %v, then %v", took, got, err)
		}
	})
}
