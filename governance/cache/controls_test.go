package cache

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func age(d time.Duration) *time.Duration { return &d }

func TestParseControls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   []string
		want Controls
	}{
		{"none", nil, Controls{}},
		{"no-cache", []string{"no-cache"}, Controls{NoCache: true}},
		{"no-store in capitals", []string{" No-Store "}, Controls{NoStore: true}},
		{"several in one", []string{"no-cache, no-store ,max-age=5"}, Controls{NoCache: true, NoStore: true, MaxAge: age(5 * time.Second)}},
		{"several headers", []string{"no-cache", "max-age=5"}, Controls{NoCache: true, MaxAge: age(5 * time.Second)}},
		{"the smaller age", []string{"max-age=7, max-age=3, max-age=9"}, Controls{MaxAge: age(3 * time.Second)}},
		{"quoted", []string{`max-age="60"`}, Controls{MaxAge: age(time.Minute)}},
		{"zero", []string{"max-age=0"}, Controls{MaxAge: age(0)}},
		{"unreadable counts as zero", []string{"max-age=soon"}, Controls{MaxAge: age(0)}},
		{"negative counts as zero", []string{"max-age=-1"}, Controls{MaxAge: age(0)}},
		{"missing counts as zero", []string{"max-age"}, Controls{MaxAge: age(0)}},
		{"larger than a duration", []string{"max-age=9999999999999"}, Controls{MaxAge: age(math.MaxInt64)}},
		{"larger than an integer", []string{"max-age=99999999999999999999999"}, Controls{MaxAge: age(math.MaxInt64)}},
		{"others are passed over", []string{"max-stale=5, only-if-cached, x-no-cache,,"}, Controls{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, ParseControls(tt.in)); diff != "" {
				t.Errorf("controls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAccepts(t *testing.T) {
	t.Parallel()
	e := sampleEntry()
	for _, tt := range []struct {
		name  string
		in    Controls
		after time.Duration
		want  bool
	}{
		{"fresh", Controls{}, 59 * time.Second, true},
		{"at its end", Controls{}, time.Minute, false},
		{"a clock a little behind", Controls{}, -time.Second, true},
		{"from the future", Controls{}, -time.Minute, false},
		{"no-cache", Controls{NoCache: true}, 0, false},
		{"no-store still reads", Controls{NoStore: true}, 0, true},
		{"young enough", Controls{MaxAge: age(5 * time.Second)}, 5 * time.Second, true},
		{"too old", Controls{MaxAge: age(5 * time.Second)}, 6 * time.Second, false},
		{"an age beyond the lifetime", Controls{MaxAge: age(time.Hour)}, 2 * time.Minute, false},
		{"max-age=0", Controls{MaxAge: age(0)}, time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.in.Accepts(e, time.Minute, e.Stored.Add(tt.after)); got != tt.want {
				t.Errorf("accepted: %v, want %v", got, tt.want)
			}
		})
	}
}

func FuzzParseControls(f *testing.F) {
	f.Add("no-cache, max-age=5")
	f.Add(`max-age="",=,`)
	f.Fuzz(func(t *testing.T, value string) {
		c := ParseControls([]string{value})
		if c.MaxAge != nil && *c.MaxAge < 0 {
			t.Fatalf("negative age %v", *c.MaxAge)
		}
		if diff := cmp.Diff(c, c.Join(ParseControls([]string{value, value}))); diff != "" {
			t.Fatalf("saying it again changes it:\n%s", diff)
		}
	})
}
