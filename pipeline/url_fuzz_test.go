package pipeline

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What parses can be dialled: it names a host and a port, or an absolute path. And parsing it again gives the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"redis://127.0.0.1:6379/0", "rediss://u:p%40@h/3", "redis://", "redis://[::1]", "redis://[::1]:7/1", "redis://::1",
		"redis+cluster://a:1,b:2", "rediss+cluster://u@a,b", "redis+sentinel://a,b:2/m/4", "unix:///run/r.sock?db=2",
		"redis://h,", "redis://h:0", "redis://h:65536", "redis://h:6379:1", "://h", "+cluster://h", "redissredis://h",
		"redis://u:%zz@h", "redis://h/65536", "redis://h?x=%zz", "redis://u:p/w@h", "redis+sentinel://h", "unix://x", "redis://[]]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "cert") || strings.Contains(s, "key") || strings.Contains(s, "%") {
			return // these name files of the machine
		}
		target, err := parse(s)
		if err != nil {
			return
		}
		if len(target.hosts) == 0 {
			t.Fatalf("%q names no host", s)
		}
		if len(target.hosts) > 1 && !target.cluster && target.master == "" {
			t.Errorf("%q is one server at %v", s, target.hosts)
		}
		for _, h := range target.hosts {
			if target.network == "unix" {
				if !strings.HasPrefix(h, "/") {
					t.Errorf("%q names the socket %q", s, h)
				}
				continue
			}
			host, port, err := net.SplitHostPort(h)
			n, wrong := strconv.ParseUint(port, 10, 16)
			if err != nil || wrong != nil || host == "" || n == 0 {
				t.Errorf("%q names %q: %v, %v", s, h, err, wrong)
			}
		}
		if target.cluster && (target.db != 0 || target.master != "") {
			t.Errorf("%q is a cluster with database %d, master %q", s, target.db, target.master)
		}
		if !SameStore(s, s) {
			t.Errorf("%q is not the same store as itself", s)
		}
	})
}

func TestURLsThatAreSlips(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"://h", "+cluster://h", "redissredis://h", "redisx://h", "h:6379", "redis://h:6379:1", "redis://h]", "redis://:6379",
		"redis+cluster://a:1,", "redis+cluster://a:1,,b:2", "redis://a,b", "redis://h:0", "redis://h:65536", "redis://h/1/2",
		"redis+cluster://h/1", "redis+sentinel://h", "redis://h?db=1", "unix://run/r.sock", "unix:///", "redis://u:p/1@h",
	} {
		if target, err := parse(s); err == nil {
			t.Errorf("%q is taken for %+v", s, target)
		}
	}
}

// Where the password stands is not certain in a URL that cannot be read: nothing of it may show.
func TestURLErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"redis://u:sec/ret@h:6379/0", "redis://u:sec?ret@h", "redis://:sec/ret@h", "redis://u:1/sec@h", "redis://u:1?sec@h",
		"redis+sentinel://u:1/sec@h/m", "redis://u:sec@h:x", "redis://u:sec%@h", "redis://u:sec@h/x", "nosuch://u:sec@h",
		"redis:sec@//h", "redis://u:a@sec@h:y", "redis://u:1/2?sec@h",
	} {
		_, err := parse(s)
		if err == nil {
			t.Errorf("%q is taken", s)
			continue
		}
		if strings.Contains(err.Error(), "sec") || strings.Contains(err.Error(), "ret") && !strings.Contains(err.Error(), "percent-encoded") {
			t.Errorf("%q: the error shows a part of the password: %v", s, err)
		}
	}
	if _, err := parse("redis://h:x"); err == nil || !strings.Contains(err.Error(), `"h:x"`) {
		t.Errorf("without a password the error shows what is wrong: %v", err)
	}
}

// reply is an error as the server sends it.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func FuzzMoved(f *testing.F) {
	for _, s := range []string{
		"MOVED 3999 127.0.0.1:6381", "ASK 16383 :7000", "MOVED 1 ?:7000", "MOVED 16384 h:1", "MOVED -1 h:1", "MOVED 1", "MOVED",
		"ASK 1 h:1 more", "moved 1 h:1", "TRYAGAIN x y", "", "MOVED 1 ::1:6381", "MOVED  1  h:1",
	} {
		f.Add(s)
	}
	at := &node{addr: "10.0.0.1:6379"}
	f.Fuzz(func(t *testing.T, s string) {
		kind, addr := moved(reply(s))
		if k, a := moved(errors.New(s)); k != "" || a != "" {
			t.Errorf("%q is no reply, but %q %q", s, k, a)
		}
		switch kind {
		case "":
			if addr != "" {
				t.Errorf("%q leads to %q", s, addr)
			}
		case "MOVED", "ASK":
			words := strings.Fields(s)
			if n, err := strconv.Atoi(words[1]); err != nil || n < 0 || n >= slots || addr == "" {
				t.Errorf("%q is %s to %q", s, kind, addr)
			}
			if _, _, err := net.SplitHostPort(addr); err != nil {
				return // dialling it says so
			}
			if got := at.neighbour(addr); strings.HasPrefix(got, ":") || strings.HasPrefix(got, "?:") {
				t.Errorf("%q leads to %q, which is no host", s, got)
			}
		default:
			t.Errorf("%q is of kind %q", s, kind)
		}
	})
}

func TestMoved(t *testing.T) {
	t.Parallel()
	type way struct{ Kind, Addr string }
	at := &node{addr: "10.0.0.1:6379"}
	for text, want := range map[string]way{
		"MOVED 3999 127.0.0.1:6381": {"MOVED", "127.0.0.1:6381"},
		"ASK 16383 :7000":           {"ASK", "10.0.0.1:7000"}, // no host: the one that was asked
		"MOVED 1 ?:7000":            {"MOVED", "10.0.0.1:7000"},
		"MOVED 1 2001:db8::1:6381":  {"MOVED", "[2001:db8::1]:6381"}, // as servers write IPv6
		"MOVED 16384 h:1":           {},
		"MOVED 1":                   {},
		"MOVED x h:1":               {},
	} {
		kind, addr := moved(reply(text))
		if diff := cmp.Diff(want, way{kind, at.neighbour(addr)}); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}
