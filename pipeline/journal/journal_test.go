package journal

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var scripts = []Script{
	{"settle", "#!lua flags=allow-oom\nreturn redis.call('HINCRBY', KEYS[1], 'spent', ARGV[3])"},
	{"renew", "return 1"},
	{"", ""},
}

// sample is the entry of a number, the same in every process.
func sample(seq int64) Entry {
	r := rand.New(rand.NewPCG(uint64(seq), 1))
	text := func(most int) string {
		b := make([]byte, r.IntN(most+1))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	list := func(most int) []string {
		var l []string
		for range r.IntN(most + 1) {
			l = append(l, text(60))
		}
		return l
	}
	return Entry{
		At: time.UnixMilli(1_790_000_000_000 + seq).UTC(), Owner: text(20), Writer: "w-" + text(10), Seq: seq,
		Script: scripts[r.IntN(len(scripts))], Keys: list(3), Args: list(6),
	}
}

func samples(from, to int64) []Entry {
	var list []Entry
	for i := from; i <= to; i++ {
		list = append(list, sample(i))
	}
	return list
}

// clock is a little later than the samples.
func clock() time.Time { return time.UnixMilli(1_790_000_000_000).Add(24 * time.Hour) }

func open(t *testing.T, dir string, change ...func(*Options)) *Journal {
	t.Helper()
	opt := Options{Dir: dir, Now: clock}
	for _, f := range change {
		f(&opt)
	}
	j, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func appendAll(t *testing.T, j *Journal, entries ...Entry) {
	t.Helper()
	if err := j.Append(entries); err != nil {
		t.Fatal(err)
	}
}

// die ends a journal as kill -9 would: what was written stays, the lock goes.
func die(t *testing.T, j *Journal) {
	t.Helper()
	for _, s := range append(j.sealed, j.active) {
		s.file.Close()
	}
	j.closeLeftovers()
	j.closed = true
}

func readLeftover(t *testing.T, l *Leftover, n int) []Entry {
	t.Helper()
	var all []Entry
	for {
		list, err := l.Next(n)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 || len(list) > n {
			t.Fatalf("Next(%d) returned %d entries", n, len(list))
		}
		all = append(all, list...)
	}
}

func readBack(t *testing.T, j *Journal, mark Mark, n int) ([]Entry, Mark) {
	t.Helper()
	var all []Entry
	for {
		list, next, err := j.ReadFrom(mark, n)
		if errors.Is(err, io.EOF) {
			return all, next
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 || len(list) > n {
			t.Fatalf("ReadFrom(%d) returned %d entries", n, len(list))
		}
		all, mark = append(all, list...), next
	}
}

// journals are the files in a folder.
func journals(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) { // much faster than a Diff
		t.Fatalf("%s (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_790_000_000_123).UTC()
	big := strings.Repeat("\x00\xff", 300<<10) // more than a chunk
	want := []Entry{
		{At: at},
		{At: at, Owner: "o", Writer: "w", Seq: 1, Script: scripts[0], Keys: []string{"k"}, Args: []string{"a", "b"}},
		{At: at, Seq: -1, Script: Script{Name: "only a name"}, Keys: []string{""}, Args: []string{"", "", "\x00"}},
		{At: at, Seq: 1<<63 - 1, Script: Script{Source: "only a source"}, Keys: []string{"\xff\xfe\n\r", big}},
		{At: at, Seq: -1 << 63, Script: scripts[0], Args: []string{big, magic}},
		{At: time.UnixMilli(-1).UTC(), Owner: big},
	}
	dir := filepath.Join(t.TempDir(), "journal")
	epoch := func(o *Options) { o.Now = func() time.Time { return time.UnixMilli(0) } } // nothing is too old
	j := open(t, dir, epoch, func(o *Options) { o.Name = "writer-1" })
	appendAll(t, j, want[:2]...)
	appendAll(t, j, want[2:]...)
	for _, n := range []int{1, 2, 100} {
		got, next := readBack(t, j, Mark{}, n)
		same(t, "read back", got, want)
		same(t, "the mark behind it", next == j.Mark(), true)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "writer-1.journal"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "mode of the file", info.Mode().Perm(), os.FileMode(0o600))
	same(t, "bytes", j.Stats(), Stats{Entries: 6, Bytes: info.Size() - headerSize, Held: info.Size()})
	if info, err = os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	same(t, "mode of the folder", info.Mode().Perm(), os.FileMode(0o700))

	next := open(t, dir, epoch)
	left := next.Leftovers()
	same(t, "leftovers", len(left), 1)
	same(t, "replayed", readLeftover(t, left[0], 4), want)
	if err := left[0].Remove(); err != nil {
		t.Fatal(err)
	}
	if err := left[0].Remove(); err != nil {
		t.Fatal("a second time:", err)
	}
	same(t, "stats", next.Stats(), Stats{Replayed: 6, Held: headerSize})
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "files in the end", journals(t, dir), []string(nil))
}

func TestAppendStampsAndCutsTime(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	at := clock().Add(999 * time.Microsecond)
	appendAll(t, j, Entry{}, Entry{At: at})
	got, _ := readBack(t, j, Mark{}, 10)
	same(t, "times", []time.Time{got[0].At, got[1].At}, []time.Time{clock().UTC(), clock().UTC()})
}

// A script's source is in the file once, however many entries and batches name it, and again after a Reset.
func TestScriptIsStoredOnce(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	e := sample(1)
	e.Script = scripts[0]
	for round := range 2 {
		for range 5 {
			appendAll(t, j, e, e)
		}
		data, err := os.ReadFile(j.active.path)
		if err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprint("sources in round ", round), strings.Count(string(data), e.Script.Source), 1)
		if err := j.Reset(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	start := j.Mark()
	if list, next, err := j.ReadFrom(start, 1); !errors.Is(err, io.EOF) || list != nil || next != start {
		t.Fatalf("empty: %v, %v, %v", list, next, err)
	}
	appendAll(t, j, samples(1, 10)...)
	middle := j.Mark()
	appendAll(t, j, samples(11, 20)...)
	got, end := readBack(t, j, middle, 3)
	same(t, "from the middle", got, samples(11, 20))
	got, _ = readBack(t, j, start, 7)
	same(t, "from the start", got, samples(1, 20))
	appendAll(t, j, sample(21))
	got, _ = readBack(t, j, end, 7)
	same(t, "what came later", got, samples(21, 21))
	if j.Size() == 0 {
		t.Error("no size")
	}
	if err := j.Reset(); err != nil {
		t.Fatal(err)
	}
	same(t, "size", j.Size(), int64(0))
	if _, _, err := j.ReadFrom(middle, 1); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a mark of before the reset: %v", err)
	}
	appendAll(t, j, sample(22))
	got, _ = readBack(t, j, Mark{}, 7)
	same(t, "after the reset", got, samples(22, 22))
}

func TestMax(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := Entry{At: clock(), Args: []string{strings.Repeat("x", 1000)}}
	// A script record of 3 bytes, an entry of 1: kind, 6: time, 1: seq, 16: digest, 2: owner and writer, 1: keys, 1003: args.
	const script, entry = prefixSize + 3, prefixSize + 1 + 6 + 1 + 16 + 2 + 1 + 1003
	const most = 2*headerSize + 2*script + 5*entry
	j := open(t, dir)
	appendAll(t, j, one, one)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	limit := func(o *Options) { o.Max = most }
	j = open(t, dir, limit)
	appendAll(t, j, one, one)
	if err := j.Append([]Entry{one, one}); !errors.Is(err, ErrFull) {
		t.Fatalf("one too many: %v", err)
	}
	appendAll(t, j, one)
	same(t, "held", j.Stats().Held, int64(most))
	if err := j.Append([]Entry{one}); !errors.Is(err, ErrFull) {
		t.Fatalf("beyond the bound: %v", err)
	}
	left := j.Leftovers()[0]
	same(t, "leftover", len(readLeftover(t, left, 10)), 2)
	if err := left.Remove(); err != nil {
		t.Fatal(err)
	}
	appendAll(t, j, one, one)
	if err := j.Append([]Entry{one}); !errors.Is(err, ErrFull) {
		t.Fatalf("beyond the bound: %v", err)
	}
	got, _ := readBack(t, j, Mark{}, 10)
	same(t, "entries", len(got), 5)
	same(t, "stats", j.Stats(), Stats{
		Entries: 5, Bytes: script + 5*entry, AppendErrors: 3, Replayed: 2, Held: headerSize + script + 5*entry,
	})
	if err := j.Reset(); err != nil {
		t.Fatal(err)
	}
	same(t, "held after a reset", j.Stats().Held, int64(headerSize))
	appendAll(t, j, one, one)
}

func TestEntryTooLarge(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	small := sample(1)
	for name, e := range map[string]Entry{
		"entry":  {Args: []string{strings.Repeat("x", MaxEntry)}},
		"script": {Script: Script{Source: strings.Repeat("x", MaxEntry)}},
	} {
		if err := j.Append([]Entry{small, e}); err == nil || !strings.Contains(err.Error(), "the most is 16777216") {
			t.Errorf("%s: %v", name, err)
		}
	}
	same(t, "size", j.Size(), int64(0))
	appendAll(t, j, small)
	got, _ := readBack(t, j, Mark{}, 10)
	same(t, "entries", got, []Entry{small})
}

func TestExpired(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	fresh, old := sample(1), sample(2)
	fresh.At, old.At = clock().Add(-Lifetime).UTC(), clock().Add(-Lifetime-time.Millisecond).UTC()
	appendAll(t, j, old, fresh, old)
	got, _ := readBack(t, j, Mark{}, 10)
	same(t, "read back", got, []Entry{fresh})
	same(t, "expired", j.Stats().Expired, int64(2))
	die(t, j)
	j = open(t, dir)
	same(t, "replayed", readLeftover(t, j.Leftovers()[0], 1), []Entry{fresh})
	same(t, "stats", j.Stats(), Stats{Replayed: 1, Expired: 2, Held: headerSize + j.Leftovers()[0].Size()})
	same(t, "lifetime", Lifetime.String(), "839h0m0s")
}

// Leftovers come oldest first, whatever their names; one that is not removed waits for the next start.
func TestLeftoversInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, name := range []string{"b", "c", "a"} {
		j := open(t, dir, func(o *Options) {
			o.Name, o.Now = name, func() time.Time { return clock().Add(time.Duration(i) * time.Second) }
		})
		appendAll(t, j, sample(int64(i)))
		die(t, j)
	}
	for range 2 {
		j := open(t, dir)
		var got []Entry
		for _, l := range j.Leftovers() {
			got = append(got, readLeftover(t, l, 10)...)
		}
		same(t, "in order", got, samples(0, 2))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRemoveBeforeTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, func(o *Options) { o.Name = "first" })
	appendAll(t, j, samples(1, 2)...)
	die(t, j)
	j = open(t, dir)
	l := j.Leftovers()[0]
	if _, err := l.Next(1); err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "first.journal")) {
		t.Fatalf("removed before its end was read: %v", err)
	}
	same(t, "the rest", readLeftover(t, l, 5), samples(2, 2))
}

// A name that is taken, by a dead process or a living one, is not used twice; an empty file is removed.
func TestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	named := func(o *Options) { o.Name = "w" }
	alive := open(t, dir, named)
	appendAll(t, alive, sample(1))
	second := open(t, dir, named)
	same(t, "leftovers beside a living process", len(second.Leftovers()), 0)
	same(t, "files", len(journals(t, dir)), 2)
	die(t, second)
	die(t, alive)
	third := open(t, dir, named)
	same(t, "leftovers", len(third.Leftovers()), 1)
	same(t, "files", len(journals(t, dir)), 2) // the empty one is gone
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "files", journals(t, dir), []string{"w.journal"})
	for _, name := range []string{"../w", ".w", "a/b", "a b", strings.Repeat("x", 129)} {
		if _, err := Open(Options{Dir: dir, Name: name}); err == nil {
			t.Errorf("name %q was taken", name)
		}
	}
}

// Files that are none of ours, or of a version to come, stay as they are.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHeader(1, 1, origin{})
	h.version = version + 1
	newer := string(h.encode()) + "something"
	for name, data := range map[string]string{"newer.journal": newer, "notes.txt": "x", "old.journal.damaged": "y"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("notes.txt", filepath.Join(dir, "link.journal")); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir)
	same(t, "leftovers", len(j.Leftovers()), 0)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "files", journals(t, dir), []string{"folder.journal", "link.journal", "newer.journal", "notes.txt", "old.journal.damaged"})
	data, err := os.ReadFile(filepath.Join(dir, "newer.journal"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the newer one", string(data), newer)
}

func TestClosed(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	mark := j.Mark()
	for range 2 {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, _, readErr := j.ReadFrom(mark, 1)
	for name, err := range map[string]error{
		"append": j.Append(samples(1, 1)), "sync": j.Sync(), "reset": j.Reset(), "read": readErr,
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Append, Sync, ReadFrom and Stats at the same time: every entry is read back once, in order.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	const last = 2000
	done := make(chan error, 2)
	go func() {
		for i := int64(1); i <= last; i += 4 {
			if err := j.Append(samples(i, i+3)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := j.Sync(); err != nil {
				done <- err
				return
			}
			_ = j.Stats()
		}
	}()
	var got []Entry
	var mark Mark
	for len(got) < last {
		list, next, err := j.ReadFrom(mark, 64)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if errors.Is(err, io.EOF) {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				done <- nil
			default:
			}
		}
		got, mark = append(got, list...), next
	}
	close(stop)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	same(t, "read back", got, samples(1, last))
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	same(t, "entries kept in memory", len(j.unsynced), 0)
}

// Journals that open, find, remove and close in one folder at the same time lose nothing, and find nothing twice.
func TestManyInOneFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const rounds, workers = 150, 4
	found := make([][]int64, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				j, err := Open(Options{Dir: dir, Name: "w", Now: clock, disk: quick{}})
				if err != nil {
					t.Error(err)
					return
				}
				for _, l := range j.Leftovers() {
					for err = nil; err == nil; {
						var list []Entry
						list, err = l.Next(10)
						for _, e := range list {
							found[w] = append(found[w], e.Seq)
						}
					}
					if err := l.Remove(); err != nil {
						t.Error(err)
					}
				}
				if i%3 != 0 { // else it closes empty
					err = j.Append([]Entry{{At: clock(), Seq: int64(w*rounds + i)}})
				} else {
					err = nil
				}
				if err := errors.Join(err, j.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	last := open(t, dir)
	all := slices.Concat(found...)
	for _, e := range collect(t, last) {
		all = append(all, e.Seq)
	}
	slices.Sort(all)
	var want []int64
	for n := range int64(workers * rounds) {
		if n%rounds%3 != 0 {
			want = append(want, n)
		}
	}
	same(t, "found", all, want)
}
