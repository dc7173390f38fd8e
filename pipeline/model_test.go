package pipeline_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-proxy/tollgate/pipeline"
	"github.com/tollgate-proxy/tollgate/pipeline/journal"
	"github.com/tollgate-proxy/tollgate/pipeline/redistest"
	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

// Each write appends its id to a list, so that the list shows how often it was applied, and in which order.
var (
	onceAppends = pipeline.NewOnce("append", `return redis.call('RPUSH', KEYS[2], ARGV[3])`)
	appends     = pipeline.NewScript("append", `return redis.call('RPUSH', KEYS[1], ARGV[1])`)
)

// entry is a write of the model: it was handed to the queue somewhere between two moments.
type entry struct {
	id               string
	list             int
	once             bool
	process, writes  int // that it was declared in, and on
	declared, closed int // steps; closed is far away while nobody has closed it
}

const never = 1 << 30

// before says whether the order of two writes is certain: what one process left behind and the writes of the next have
// none.
func (e *entry) before(x *entry) bool {
	return e.process == x.process && (e.closed < x.declared || e.writes == x.writes && e.declared < x.declared)
}

// process is one queue of the model, and its ends.
type process struct {
	queue  *pipeline.Deferred
	open   []*session
	stayed bool // it was ended while Redis was away, without a journal
	lost   int  // what Drain said
}

// session is a Writes of the model.
type session struct {
	number  int
	process int
	writes  *pipeline.Writes
	entries []*entry
}

// books is the state machine: processes that write behind a proxy, one after the other, and what must come of it.
type books struct {
	server   *redistest.Server
	proxy    *redistest.Proxy
	backend  *pipeline.Backend
	opt      pipeline.DeferredOptions
	dir      string // of the journal; empty: there is none
	step     int
	sessions int
	entries  []*entry
	all      []*process
	tears    bool // connections are cut
	cuts     *atomic.Int64
}

func (m *books) now() *process { return m.all[len(m.all)-1] }

func (m *books) start(t *rapid.T) {
	opt := m.opt
	if m.dir != "" {
		j, err := journal.Open(journal.Options{Dir: m.dir})
		if err != nil {
			t.Fatal(err)
		}
		opt.Journal = j
	}
	m.all = append(m.all, &process{queue: pipeline.NewDeferred(m.backend, opt)})
}

func (m *books) openSession(p *process) *session {
	m.sessions++
	s := &session{number: m.sessions, process: len(m.all), writes: p.queue.Writes()}
	p.open = append(p.open, s)
	return s
}

func (m *books) declare(s *session, list int, once bool) {
	m.step++
	e := &entry{
		id: strconv.Itoa(len(m.entries)), list: list, once: once, process: s.process, writes: s.number,
		declared: m.step, closed: never,
	}
	m.entries = append(m.entries, e)
	s.entries = append(s.entries, e)
	tag := fmt.Sprintf("{%d}", list)
	if once {
		s.writes.Once("model", onceAppends, []string{tag + ":w:" + s.writes.Writer(), tag + ":list"}, e.id)
	} else {
		s.writes.Eval("model", appends, []string{tag + ":list"}, e.id)
	}
}

func (m *books) close(p *process, i int) {
	s := p.open[i]
	p.open = append(p.open[:i:i], p.open[i+1:]...)
	s.writes.Close()
	m.step++
	for _, e := range s.entries {
		e.closed = m.step
	}
}

// end drains a process, in time or not.
func (m *books) end(t *rapid.T, p *process, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	left, lost := p.queue.Drain(ctx)
	p.lost = lost
	if lost > left {
		t.Errorf("%d lost of %d left", lost, left)
	}
	if m.dir == "" && left != lost {
		t.Errorf("without a journal %d were left and %d lost", left, lost)
	}
	p.stayed = m.dir == "" && left > 0
}

// lists are the lists that writes go to: those of one process share a lane or have lanes of their own.
const lists = 3

func (m *books) actions() map[string]func(*rapid.T) {
	list := rapid.IntRange(0, lists-1)
	some := func(t *rapid.T, s *session) {
		for range rapid.IntRange(1, 4).Draw(t, "writes") {
			m.declare(s, list.Draw(t, "list"), rapid.IntRange(0, 3).Draw(t, "kind") > 0)
		}
	}
	write := func(t *rapid.T) {
		some(t, m.openSession(m.now()))
		m.close(m.now(), len(m.now().open)-1)
	}
	return map[string]func(*rapid.T){
		"write": write, "write more": write, "write still more": write,
		"declare": func(t *rapid.T) {
			p := m.now()
			if len(p.open) == 0 || rapid.Bool().Draw(t, "new") {
				m.openSession(p)
			}
			some(t, p.open[rapid.IntRange(0, len(p.open)-1).Draw(t, "open")])
		},
		"close": func(t *rapid.T) {
			if n := len(m.now().open); n > 0 {
				m.close(m.now(), rapid.IntRange(0, n-1).Draw(t, "open"))
			}
		},
		"lose a reply": func(t *rapid.T) {
			after := rapid.IntRange(0, 5).Draw(t, "after")
			m.proxy.CutAfter(func(cmd []string) bool {
				if !m.tears || !strings.HasPrefix(strings.ToLower(cmd[0]), "eval") {
					return false
				}
				after--
				if after < 0 {
					m.cuts.Add(1)
				}
				return after < 0
			})
		},
		"refuse":       func(*rapid.T) { m.proxy.Refuse(m.tears) },
		"accept":       func(*rapid.T) { m.proxy.Refuse(false) },
		"flush script": func(t *rapid.T) { m.server.Client().ScriptFlush(t.Context()) },
		"flush script later": func(t *rapid.T) {
			after := rapid.IntRange(0, 6).Draw(t, "after")
			m.proxy.CutAfter(func([]string) bool {
				if after--; after == 0 {
					m.server.Client().ScriptFlush(context.Background())
				}
				return false
			})
		},
		"stall": func(t *rapid.T) {
			m.proxy.Stall(true)
			time.Sleep(time.Duration(rapid.IntRange(1, 10).Draw(t, "ms")) * time.Millisecond)
			m.proxy.Stall(false)
		},
		"wait": func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 8).Draw(t, "ms")) * time.Millisecond) },
		"restart": func(t *rapid.T) {
			p := m.now()
			for len(p.open) > 0 && rapid.Bool().Draw(t, "close first") {
				m.close(p, 0)
			}
			m.end(t, p, time.Duration(rapid.SampledFrom([]int{0, 1, 30}).Draw(t, "patience"))*time.Millisecond)
			if rapid.Bool().Draw(t, "one more") { // from a request that outlives the queue
				some(t, m.openSession(p))
			}
			for len(p.open) > 0 {
				m.close(p, 0)
			}
			m.start(t)
		},
	}
}

// settle ends everything in good order and looks at the books.
func (m *books) settle(t *rapid.T) {
	m.proxy.Stall(false)
	m.proxy.Refuse(false)
	p := m.now()
	for len(p.open) > 0 {
		m.close(p, 0)
	}
	m.end(t, p, 30*time.Second)
	if p.stayed {
		t.Errorf("%d writes were not answered", p.lost)
	}
	applied := map[string]int{}
	for l := range lists {
		ids := m.server.Client().LRange(context.Background(), fmt.Sprintf("{%d}:list", l), 0, -1).Val()
		m.inOrder(t, l, ids)
		for _, id := range ids {
			applied[id]++
		}
	}
	missing := 0
	for _, e := range m.entries {
		switch n := applied[e.id]; {
		case e.once && n > 1:
			t.Errorf("write %s was applied %d times", e.id, n)
		case e.once && n == 0:
			missing++
		}
	}
	reported, atEnd := 0, 0
	for _, p := range m.all {
		s := p.queue.Stats()
		reported += int(s.Lost)
		if s.Refused != 0 {
			t.Errorf("%d writes were refused", s.Refused)
		}
		if p.stayed { // of what is left some may be replaceable, and some were applied
			atEnd += p.lost
		}
	}
	if missing < reported || missing > reported+atEnd {
		t.Errorf("%d writes are missing, %d were reported and up to %d at an end", missing, reported, atEnd)
	}
	if m.dir == "" {
		return
	}
	if left, err := filepath.Glob(filepath.Join(m.dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// inOrder wants what was applied in the order in which it was handed over, as far as that is certain. What may be lost is
// held to less. It may run before an exactly-once write that waits, for the script or on disk. And one whose connection
// was cut is given up, and may yet run: the server reads from the next connection first, now and then.
func (m *books) inOrder(t *rapid.T, list int, ids []string) {
	entries := make([]*entry, len(ids))
	for i, id := range ids {
		n, err := strconv.Atoi(id)
		if err != nil || n >= len(m.entries) || m.entries[n].list != list {
			t.Fatalf("list %d holds %q", list, id)
		}
		entries[i] = m.entries[n]
	}
	for i, e := range entries {
		for _, later := range entries[i+1:] {
			if later.before(e) && (later.once && e.once || !later.once && !m.tears) {
				t.Errorf("list %d: %s (once %v) was applied before %s (once %v): %v", list, e.id, e.once, later.id, later.once, ids)
			}
		}
	}
}

// Any interleaving of declarations, ends and faults: each exactly-once write is applied once or reported, in order.
func TestBooksOfAnyInterleaving(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var cuts atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		server.Client().FlushAll(t.Context())
		proxy, backend := newBehind(t, server)
		defer proxy.Close()
		defer func() { _ = backend.Close() }()
		m := &books{server: server, proxy: proxy, backend: backend, cuts: &cuts, opt: pipeline.DeferredOptions{
			Deadline:     rapid.SampledFrom([]time.Duration{time.Hour, 10 * time.Millisecond}).Draw(t, "deadline"),
			MaxPending:   rapid.SampledFrom([]int{6, 30, 1000}).Draw(t, "max pending"),
			MaxFlush:     rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "max flush"),
			Workers:      rapid.IntRange(1, 2).Draw(t, "workers"),
			JournalAfter: rapid.SampledFrom([]time.Duration{0, 3 * time.Millisecond}).Draw(t, "journal after"),
		}}
		if rapid.Bool().Draw(t, "journal") {
			dir, err := os.MkdirTemp("", "books")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(dir) }()
			m.dir = dir
		}
		m.tears = rapid.IntRange(0, 3).Draw(t, "tears") > 0
		m.start(t)
		t.Repeat(m.actions())
		m.settle(t)
	})
	if cuts.Load() == 0 {
		t.Error("no reply was lost: the test shows nothing")
	}
}

// newBehind is a backend behind a proxy that lives for one check.
func newBehind(t *rapid.T, server *redistest.Server) (*redistest.Proxy, *pipeline.Backend) {
	proxy, err := tripcount.New(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	b, err := pipeline.Open(pipeline.Options{URL: proxy.URL(), Eval: rapid.IntRange(0, 3).Draw(t, "eval") == 0})
	if err != nil {
		t.Fatal(err)
	}
	return proxy, b
}
