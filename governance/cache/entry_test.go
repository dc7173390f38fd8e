package cache

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/governance/usage"
)

func sampleEntry() Entry {
	return Entry{
		Stored:      time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC),
		Status:      200,
		Model:       "gpt-4o-mini-2024-07-18",
		Usage:       usage.Usage{Input: 1, CacheRead: 2, CacheWrite: 3, CacheWrite1h: 4, CacheWrite12h: 5, Output: 6, Reasoning: 1 << 60},
		ContentType: "application/json",
		Body:        []byte(`{"choices":[]}`),
	}
}

func TestEntryRoundTrip(t *testing.T) {
	t.Parallel()
	k := Key{1}
	for _, tt := range []struct {
		name   string
		change func(*Entry)
	}{
		{"full", func(*Entry) {}},
		{"no usage, no model", func(e *Entry) { e.Usage, e.Model = usage.Usage{}, "" }},
		{"before 1970", func(e *Entry) { e.Stored = time.Unix(-1, 0).UTC() }},
		{"binary body", func(e *Entry) { e.Body = []byte{0, 255, 'x'} }},
		{"largest body", func(e *Entry) { e.Body = bytes.Repeat([]byte("x"), 1<<20) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := sampleEntry()
			tt.change(&want)
			got, err := Decode(k, want.Encode(k))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want.Body, got.Body) {
				t.Errorf("body of %d bytes, want the %d that were stored", len(got.Body), len(want.Body))
			}
			want.Body, got.Body = nil, nil // compared above: a diff of a megabyte takes seconds
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodeRaisesNegativeCounts(t *testing.T) {
	t.Parallel()
	e := sampleEntry()
	e.Usage.Output = -5
	got, err := Decode(Key{}, e.Encode(Key{}))
	if err != nil || got.Usage.Output != 0 {
		t.Errorf("output %d, error %v; want 0", got.Usage.Output, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	k := Key{1}
	good := sampleEntry().Encode(k)
	for n := range len(good) {
		if _, err := Decode(k, good[:n]); err == nil {
			t.Errorf("cut to %d of %d bytes it still decodes", n, len(good))
		}
		damaged := bytes.Clone(good)
		damaged[n] ^= 1
		if _, err := Decode(k, damaged); err == nil {
			t.Errorf("with byte %d flipped it still decodes", n)
		}
	}
	if _, err := Decode(Key{2}, good); err == nil {
		t.Error("it decodes under another key")
	}
	if _, err := Decode(k, append(bytes.Clone(good), 'x')); err == nil {
		t.Error("it decodes with a byte more")
	}
	for _, tt := range []struct {
		name   string
		change func(*Entry)
	}{
		{"an error status", func(e *Entry) { e.Status = 500 }},
		{"no status", func(e *Entry) { e.Status = 0 }},
		{"no body", func(e *Entry) { e.Body = nil }},
		{"a header in the content type", func(e *Entry) { e.ContentType = "a\r\nx-evil: 1" }},
		{"an endless model", func(e *Entry) { e.Model = strings.Repeat("m", maxText+1) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := sampleEntry()
			tt.change(&e)
			if got, err := Decode(k, e.Encode(k)); err == nil {
				t.Errorf("decodes to %+v", got)
			}
		})
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	e := sampleEntry()
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  int64
	}{
		{"new", 0, 0}, {"rounded down", 1999 * time.Millisecond, 1}, {"a clock behind", -time.Hour, 0}, {"a minute", time.Minute, 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := e.Age(e.Stored.Add(tt.after)); got != tt.want {
				t.Errorf("age %d, want %d", got, tt.want)
			}
		})
	}
}

// FuzzDecode: Decode neither panics nor takes what Encode did not write.
func FuzzDecode(f *testing.F) {
	k := Key{1}
	good := sampleEntry().Encode(k)
	f.Add(good)
	f.Add(good[:40])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, form := range [][]byte{data, sealed(k, data)} {
			e, err := Decode(k, form)
			if err != nil {
				continue
			}
			again, err := Decode(k, e.Encode(k))
			if err != nil {
				t.Fatalf("what decodes does not encode: %v", err)
			}
			if diff := cmp.Diff(e, again); diff != "" {
				t.Fatalf("entry changes (-first +second):\n%s", diff)
			}
		}
	})
}

// sealed puts a right checksum before any fields, so that the fuzzer reaches them.
func sealed(k Key, fields []byte) []byte {
	sum := checksum(k, fields)
	return append(append([]byte(magic), sum[:]...), fields...)
}
