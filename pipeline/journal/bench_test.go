package journal

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// settlement is an entry of about 700 bytes.
func settlement() Entry {
	e := Entry{
		At: clock(), Owner: "0198f3c2-7d5e-7a11-9c44-5b1f0a2e6d01", Writer: "0198f3c2-7d5e-7a11-9c44-5b1f0a2e6d02", Seq: 123456,
		Script: Script{"settle", strings.Repeat("redis.call('HINCRBY') ", 200)},
	}
	for range 5 {
		e.Keys = append(e.Keys, "tg:{org-1234567890}:c:0198f3c2-7d5e-7a11-9c44-5b1f0a2e6d03")
	}
	for range 15 {
		e.Args = append(e.Args, "123456789012345678901")
	}
	return e
}

// What a batch costs to append, without fsync, and an entry to read.
func BenchmarkJournal(b *testing.B) {
	for _, n := range []int{1, 64, 512} {
		batch := make([]Entry, n)
		for i := range batch {
			batch[i] = settlement()
		}
		b.Run("append/"+map[int]string{1: "1", 64: "64", 512: "512"}[n], func(b *testing.B) {
			j, err := Open(Options{Dir: b.TempDir(), Now: clock, disk: quick{}})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = j.Close() })
			b.ReportAllocs()
			for b.Loop() {
				if err := j.Append(batch); err != nil {
					b.Fatal(err)
				}
				if j.Size() > 64<<20 {
					if err := j.Reset(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.SetBytes(j.count.bytes.Load() / int64(b.N))
		})
	}
	b.Run("read", func(b *testing.B) {
		j, err := Open(Options{Dir: b.TempDir(), Now: clock, disk: quick{}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = j.Close() })
		for range 10_000 {
			if err := j.Append([]Entry{settlement()}); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(j.Size() / 10_000)
		b.ReportAllocs()
		var mark Mark
		for n := 0; n < b.N; {
			list, next, err := j.ReadFrom(mark, min(512, b.N-n))
			if errors.Is(err, io.EOF) {
				next = Mark{}
			} else if err != nil {
				b.Fatal(err)
			}
			n, mark = n+len(list), next
		}
	})
}
