package journal

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// built is a file made in memory, with what is where.
type built struct {
	data    []byte
	entries []Entry
	records []record
}

type record struct {
	from, to int64
	entry    int // index, -1 for a script
}

// build makes a file with a fixed marker, so that fuzzing can keep what it finds.
func build(entries []Entry) built {
	h := header{version, 1, 1_790_000_000_000, keyOf([]byte("\x8a!\x00marker"[:8])), origin{}}
	j := &Journal{active: &segment{head: h}}
	j.buf = h.encode()
	b := built{entries: entries}
	for i := range entries {
		before, known := int64(len(j.buf)), len(j.active.known)
		at, err := j.encode(&entries[i])
		if err != nil {
			panic(err) //nolint:forbidigo // a slip in the test: no sample is too large
		}
		if len(j.active.known) > known {
			b.records = append(b.records, record{before, at, -1})
		}
		b.records = append(b.records, record{at, int64(len(j.buf)), i})
	}
	b.data = j.buf
	return b
}

// read reads a file in memory to its end.
func read(t *testing.T, data []byte, known ...Script) ([]Entry, *reader) {
	t.Helper()
	h, intact := decodeHeader(data)
	r, err := newReader(bytes.NewReader(data), int64(len(data)), h, intact)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range known {
		r.scripts[digestOf(s)] = s
	}
	var list []Entry
	for {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			if r.off != int64(len(data)) {
				t.Fatalf("reading ended at %d of %d", r.off, len(data))
			}
			return list, r
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
}

// checkOrdered fails unless got is some of want, in order.
func checkOrdered(t *testing.T, got, want []Entry) {
	t.Helper()
	next := 0
	for _, e := range got {
		for next < len(want) && !reflect.DeepEqual(want[next], e) {
			next++
		}
		if next == len(want) {
			t.Fatalf("entry %+v was not written, or not in this order", e)
		}
		next++
	}
}

// quick leaves the fsyncs out: what these tests cut and flip, they cut and flip themselves.
type quick struct{ osDisk }

type quickFile struct{ file }

func (quickFile) Sync() error      { return nil }
func (quick) syncDir(string) error { return nil }
func quickly(o *Options)           { o.disk = quick{} }
func silently(o *Options)          { o.Log = slog.New(slog.DiscardHandler) }
func (q quick) create(p string) (file, error) {
	f, err := q.osDisk.create(p)
	if err != nil {
		return nil, err
	}
	return quickFile{f}, nil
}

// Cut anywhere, a journal gives all entries that are complete, is not taken for damaged, and is removed in the end.
func TestCutAtEveryOffset(t *testing.T) {
	t.Parallel()
	b := build(samples(1, 6))
	dir := t.TempDir()
	for n := range len(b.data) + 1 {
		if err := os.WriteFile(filepath.Join(dir, "dead.journal"), b.data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		var want []Entry
		whole := min(n, headerSize)
		for _, r := range b.records {
			if r.to > int64(n) {
				break
			}
			whole = int(r.to)
			if r.entry >= 0 {
				want = append(want, b.entries[r.entry])
			}
		}
		j := open(t, dir, quickly)
		if n <= headerSize {
			same(t, "leftovers of an empty file", len(j.Leftovers()), 0)
		} else {
			l := j.Leftovers()[0]
			same(t, "entries", readLeftover(t, l, 4), want)
			same(t, "stats", j.Stats(), Stats{Replayed: int64(len(want)), TornBytes: int64(n - whole), Held: headerSize + int64(n)})
			if err := l.Remove(); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		same(t, "files", journals(t, dir), []string(nil))
	}
}

// Any bit that flips costs the record it is in, and nothing else. A script's record costs the entries that name it, unless
// the program has the script itself.
func TestFlipEveryBit(t *testing.T) {
	t.Parallel()
	b := build(samples(1, 8))
	for i := range b.data {
		for bit := range 8 {
			data := bytes.Clone(b.data)
			data[i] ^= 1 << bit
			got, r := read(t, data, scripts...)
			want, firm := slices.Clone(b.entries), true
			for _, rec := range b.records {
				if int64(i) < rec.from || int64(i) >= rec.to {
					continue
				}
				if rec.entry >= 0 {
					want = slices.Delete(want, rec.entry, rec.entry+1)
				}
				firm = rec.to < int64(len(data))
				if lost := r.damaged + r.torn; lost != rec.to-rec.from {
					t.Fatalf("byte %d: %d bytes lost of a record of %d", i, lost, rec.to-rec.from)
				}
			}
			same(t, "entries", got, want)
			if firm != (r.damaged > 0) || firm == (r.torn > 0) {
				t.Fatalf("byte %d of %d: damaged %d, torn %d", i, len(data), r.damaged, r.torn)
			}
			got, _ = read(t, data)
			checkOrdered(t, got, b.entries)
		}
	}
}

// A damaged file is kept aside, each under a name of its own, and is not found again.
func TestDamagedIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := build(samples(1, 20))
	middle := b.records[len(b.records)/2]
	b.data[middle.from+prefixSize] ^= 1
	for round := range 2 {
		if err := os.WriteFile(filepath.Join(dir, "dead.journal"), b.data, 0o600); err != nil {
			t.Fatal(err)
		}
		j := open(t, dir, silently)
		l := j.Leftovers()[0]
		same(t, "entries", len(readLeftover(t, l, 4)), 19)
		same(t, "damaged", j.Stats().DamagedBytes, middle.to-middle.from)
		if err := l.Remove(); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		same(t, "files", journals(t, dir), []string{"dead.journal.damaged", "dead.journal.damaged.2"}[:round+1])
	}
	kept, err := os.ReadFile(filepath.Join(dir, "dead.journal.damaged"))
	if err != nil || !bytes.Equal(kept, b.data) {
		t.Errorf("the file that is kept is not the one that was there: %v", err)
	}
}

// Whoever chooses an argument cannot make it a record: not even a copy of a whole journal, with its marker, is taken for
// entries when the record around it is damaged.
func TestJournalInsideAnArgument(t *testing.T) {
	t.Parallel()
	inner := build(samples(1, 5))
	outer := samples(6, 8)
	outer[1].Args = []string{string(inner.data)}
	b := build(outer)
	for _, rec := range b.records {
		if rec.entry == 1 {
			b.data[rec.from+3] ^= 1
		}
	}
	got, _ := read(t, b.data, scripts...)
	same(t, "entries", got, []Entry{outer[0], outer[2]})
}

// Disks lose ranges, write zeros, swap blocks and repeat them. Nothing that was not written comes out of that, and what
// is elsewhere is not lost.
func TestRandomDamage(t *testing.T) {
	t.Parallel()
	b := build(samples(1, 40))
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		data := bytes.Clone(b.data)
		for range 1 + r.IntN(3) {
			from := r.IntN(len(data))
			to := from + r.IntN(len(data)-from)
			if r.IntN(2) == 0 {
				to = min(from+r.IntN(64), len(data))
			}
			switch r.IntN(5) {
			case 0:
				clear(data[from:to])
			case 1:
				for i := from; i < to; i++ {
					data[i] = byte(r.Uint32())
				}
			case 2: // a block from elsewhere
				copy(data[from:to], b.data[r.IntN(len(b.data)):])
			case 3: // bytes missing
				data = append(data[:from:from], data[to:]...)
			case 4: // bytes twice
				data = slices.Concat(data[:to], data[from:])
			}
			if len(data) == 0 {
				data = []byte{0}
			}
		}
		var intact []Entry
		for _, rec := range b.records {
			if rec.entry >= 0 && rec.to <= int64(len(data)) && bytes.Equal(data[rec.from:rec.to], b.data[rec.from:rec.to]) {
				intact = append(intact, b.entries[rec.entry])
			}
		}
		got, _ := read(t, data, scripts...)
		if _, ok := decodeHeader(data); ok {
			same(t, "entries", got, intact)
		}
		checkOrdered(t, got, b.entries)
	}
}

// flaky fails to read some places.
type flaky struct {
	*bytes.Reader
	bad func(from, to int64) bool
}

func (f flaky) ReadAt(p []byte, at int64) (int, error) {
	if f.bad(at, at+int64(len(p))) {
		return 0, errors.New("input/output error")
	}
	return f.Reader.ReadAt(p, at)
}

// A page that cannot be read costs the entries in it; a disk that cannot be read is an error, and costs none.
func TestUnreadablePage(t *testing.T) {
	t.Parallel()
	b := build(samples(1, 3000))
	if len(b.data) < 2*chunk {
		t.Fatalf("a file of %d bytes is too small", len(b.data))
	}
	const from, to = 40 * page, 41 * page
	bad := func(a, z int64) bool { return a < to && z > from }
	var want []Entry
	for _, rec := range b.records {
		if rec.entry >= 0 && !bad(rec.from, rec.to) {
			want = append(want, b.entries[rec.entry])
		}
	}
	h, _ := decodeHeader(b.data)
	r, err := newReader(flaky{bytes.NewReader(b.data), bad}, int64(len(b.data)), h, true)
	if err != nil {
		t.Fatal(err)
	}
	var got []Entry
	for err == nil {
		var e Entry
		if e, err = r.next(); err == nil {
			got = append(got, e)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	same(t, "entries", len(got), len(want))
	checkOrdered(t, got, want)

	if r, err = newReader(flaky{bytes.NewReader(b.data), func(int64, int64) bool { return true }}, int64(len(b.data)), h, true); err != nil {
		t.Fatal(err)
	}
	if _, err := r.next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a disk that cannot be read: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	b := build(samples(1, 12))
	f.Add(b.data)
	f.Add(b.data[:len(b.data)-5])
	f.Add(b.data[headerSize:])
	f.Add([]byte{})
	for _, rec := range b.records {
		data := bytes.Clone(b.data)
		data[rec.from+12] ^= 0x80 // its length
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, r := read(t, data, scripts...)
		checkOrdered(t, got, b.entries)
		if r.damaged+r.torn > int64(len(data)) {
			t.Fatalf("%d bytes lost of %d", r.damaged+r.torn, len(data))
		}
	})
}

// FuzzPayload: whatever a payload holds, taking it apart does not panic, and what is read as an entry is written and
// read again as the same.
func FuzzPayload(f *testing.F) {
	for i := range int64(8) {
		e := sample(i)
		d := digestOf(e.Script)
		f.Add(appendEntry(nil, &e, &d))
		f.Add(appendScript(nil, e.Script))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, ok := (&payload{rest: string(data)}).script(); ok {
			p := payload{rest: string(appendScript(nil, s))}
			again, ok := p.script()
			if !ok || again != s {
				t.Fatalf("%q was read again as %q", s, again)
			}
		}
		e, d, ok := (&payload{rest: string(data)}).entry()
		if !ok || e.At.Year() < 0 || e.At.Year() > 9999 {
			return
		}
		again, d2, ok := (&payload{rest: string(appendEntry(nil, &e, &d))}).entry()
		if !ok || d2 != d || !reflect.DeepEqual(again, e) {
			t.Fatalf("%+v was read again as %+v", e, again)
		}
	})
}

// The next record is found also where its marker lies across two chunks.
func TestMarkerAcrossChunks(t *testing.T) {
	t.Parallel()
	for k := -1; k < 10; k++ {
		list := []Entry{sample(1), sample(2), sample(3)}
		list[1].Args = []string{string(make([]byte, chunk/2))}
		at := func(b built, entry int) record {
			return b.records[slices.IndexFunc(b.records, func(r record) bool { return r.entry == entry })]
		}
		rec := at(build(list), 1) // so long is it with half a chunk; what is missing goes into the argument
		list[1].Args[0] += string(make([]byte, chunk-k-int(rec.to-rec.from)))
		b := build(list)
		rec = at(b, 1)
		same(t, "length", rec.to-rec.from, int64(chunk-k))
		b.data[rec.to-1] ^= 1
		got, r := read(t, b.data, scripts...)
		same(t, "entries", got, []Entry{list[0], list[2]})
		same(t, "damaged", r.damaged, int64(chunk-k))
	}
}
