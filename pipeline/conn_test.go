package pipeline

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// pair is a connection of the package's own dialer and its other end.
func pair(t *testing.T) (ours, other net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ours, err = dialer(nil)(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), other.Close() })
	return ours, other
}

func TestReplyThatIsThereIsTaken(t *testing.T) {
	t.Parallel()
	ours, other := pair(t)
	if _, err := other.Write([]byte("+OK\r\n")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // it has arrived
	if err := ours.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, err := ours.Read(b); err != nil || string(b[:n]) != "+OK\r\n" {
		t.Errorf("read %q, %v", b[:n], err)
	}
	begin := time.Now()
	if n, err := ours.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) || n != 0 {
		t.Errorf("without a reply: read %q, %v", b[:n], err)
	}
	if took := time.Since(begin); took > 500*time.Millisecond {
		t.Errorf("without a reply it waited %s beyond the deadline", took)
	}
}

func TestWriteErrorTellsWhetherAnythingLeft(t *testing.T) {
	t.Parallel()
	ours, other := pair(t)
	past := time.Now().Add(-time.Second)
	_ = ours.SetWriteDeadline(past)
	if _, err := ours.Write([]byte("x")); !neverSent(err) {
		t.Errorf("nothing has left, but the error says %v", err)
	}
	_ = ours.SetWriteDeadline(time.Time{})
	if _, err := ours.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_ = ours.SetWriteDeadline(past)
	if _, err := ours.Write([]byte("y")); err == nil || neverSent(err) {
		t.Errorf("the first part has left, but the error says %v", err)
	}
	if _, err := other.Write([]byte("r")); err != nil { // a reply ends the batch
		t.Fatal(err)
	}
	if _, err := ours.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write([]byte("z")); !neverSent(err) {
		t.Errorf("nothing of the next batch has left, but the error says %v", err)
	}
}
