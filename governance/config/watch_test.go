package config

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// watched runs Watch over main.yaml of a directory until the test ends.
type watched struct {
	dir     string
	applied chan *Config
	log     *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func watch(t *testing.T, dir string) *watched {
	t.Helper()
	path := filepath.Join(dir, "main.yaml")
	current, err := Load(path, Options{Env: lookup(nil)})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{dir: dir, applied: make(chan *Config), log: &lockedBuffer{}}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		apply := func(c *Config) {
			select {
			case w.applied <- c:
			case <-ctx.Done():
			}
		}
		Watch(ctx, path, Options{Env: lookup(nil), Current: current}, 5*time.Millisecond, apply, slog.New(slog.NewTextHandler(w.log, nil)))
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return w
}

// next is the next version that is applied.
func (w *watched) next(t *testing.T) *Config {
	t.Helper()
	select {
	case c := <-w.applied:
		return c
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing is applied; log:\n%s", w.log)
		return nil
	}
}

func TestWatchFiles(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"main.yaml": "include: [conf.d/*.yaml]\nredis: {url: 'redis://h', password: 'file:pw'}\n", "pw": "old", "conf.d/a.yaml": "teams: [{id: a}]\n",
	})
	w := watch(t, dir)

	replace(t, filepath.Join(dir, "pw"), "new") // the same size
	if c := w.next(t); c.Redis.Password != "new" {
		t.Errorf("password %q", c.Redis.Password)
	}
	replace(t, filepath.Join(dir, "conf.d/a.yaml"), "teams: [{id: b}]\n")
	if c := w.next(t); c.Teams[0].ID != "b" {
		t.Errorf("teams %v", c.Teams)
	}
	replace(t, filepath.Join(dir, "conf.d/b.yaml"), "teams: [{id: c}]\n")
	if c := w.next(t); len(c.Teams) != 2 {
		t.Errorf("teams %v", c.Teams)
	}
	if err := os.Remove(filepath.Join(dir, "conf.d/a.yaml")); err != nil {
		t.Fatal(err)
	}
	if c := w.next(t); len(c.Teams) != 1 {
		t.Errorf("teams %v", c.Teams)
	}
	replace(t, filepath.Join(dir, "main.yaml"), "drain: 5s\n")
	if c := w.next(t); c.Drain != 5*time.Second || len(c.Teams) != 0 {
		t.Errorf("drain %v, teams %v", c.Drain, c.Teams)
	}
}

// TestWatchRefuses: a bad version is logged once and not applied; the next good one is.
func TestWatchRefuses(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"main.yaml": "drain: 1s\n"})
	w := watch(t, dir)
	replace(t, filepath.Join(dir, "main.yaml"), "drain: soon\n")
	deadline := time.Now().Add(10 * time.Second)
	for !strings.Contains(w.log.String(), "new configuration refused") {
		if time.Now().After(deadline) {
			t.Fatal("the refusal is not logged")
		}
		time.Sleep(time.Millisecond)
	}
	replace(t, filepath.Join(dir, "main.yaml"), "drain: 2s\n")
	if c := w.next(t); c.Drain != 2*time.Second {
		t.Errorf("drain %v", c.Drain)
	}
	if log := w.log.String(); strings.Count(log, "refused") != 1 || !strings.Contains(log, "main.yaml:1: drain: must be a duration") {
		t.Errorf("log:\n%s", log)
	}
}

// TestWatchSymlinkSwap does what the kubelet does to a ConfigMap: the files are links through ..data, which is
// renamed over; the new file has the size and the time of the old one.
func TestWatchSymlinkSwap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stamp := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	version := func(name, text string) {
		replace(t, filepath.Join(dir, name, "main.yaml"), text)
		if err := os.Chtimes(filepath.Join(dir, name, "main.yaml"), stamp, stamp); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..v1", "drain: 1s\n")
	if err := os.Symlink("..data/main.yaml", filepath.Join(dir, "main.yaml")); err != nil {
		t.Fatal(err)
	}
	w := watch(t, dir)
	version("..v2", "drain: 2s\n")
	if c := w.next(t); c.Drain != 2*time.Second {
		t.Errorf("drain %v", c.Drain)
	}
}

// TestWatchSurvivesAbsence: a file that is gone for a moment, as between an editor's rename and write, is no new version.
func TestWatchSurvivesAbsence(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"main.yaml": "drain: 1s\n"})
	w := watch(t, dir)
	if err := os.Remove(filepath.Join(dir, "main.yaml")); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for !strings.Contains(w.log.String(), "no such file") {
		if time.Now().After(deadline) {
			t.Fatal("the absence is not logged")
		}
		time.Sleep(time.Millisecond)
	}
	replace(t, filepath.Join(dir, "main.yaml"), "drain: 3s\n")
	if c := w.next(t); c.Drain != 3*time.Second {
		t.Errorf("drain %v", c.Drain)
	}
}
