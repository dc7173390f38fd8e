package pipeline

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// EmbeddedOptions bounds the in-process store.
type EmbeddedOptions struct {
	// MaxKeys is how many keys it holds before those with the Evictable prefix are thrown away. Zero means 100,000.
	MaxKeys int
	// Evictable is the prefix of keys that may be lost at any time.
	Evictable string
	Tracer    *Tracer
}

// embedded is the store behind a Backend that has no server.
type embedded struct {
	store *miniredis.Miniredis
	stop  chan struct{}
	done  chan struct{}
}

// sweep is how often the in-process store is told that time has passed: its TTLs move only then.
const sweep = 250 * time.Millisecond

// embeddedDeadline bounds the wait for the in-process store. It cannot be away, only busy: a burst of a thousand
// requests takes its Lua a second, and refusing them would be worse than letting them wait.
const embeddedDeadline = 30 * time.Second

// OpenEmbedded starts the in-process store. It answers on a loopback port behind a password made for this process, and
// keeps nothing once closed.
func OpenEmbedded(opt EmbeddedOptions) (*Backend, error) {
	store := miniredis.NewMiniRedis()
	if err := store.Start(); err != nil {
		return nil, fmt.Errorf("in-process store: %w", err)
	}
	password := rand.Text()
	store.RequireAuth(password)
	e := &embedded{store: store, stop: make(chan struct{}), done: make(chan struct{})}
	if opt.MaxKeys <= 0 {
		opt.MaxKeys = 100_000
	}
	go e.run(opt)
	b := open(&target{network: "tcp", hosts: []string{store.Addr()}, password: password},
		Options{Tracer: opt.Tracer, Deadline: embeddedDeadline}, withoutShebang)
	b.embedded = e
	return b, nil
}

func (e *embedded) run(opt EmbeddedOptions) {
	defer close(e.done)
	tick := time.NewTicker(sweep)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-e.stop:
			return
		case now := <-tick.C:
			e.store.FastForward(now.Sub(last)) // the time really passed: ticks can be late
			last = now
			e.evict(opt)
		}
	}
}

// evict makes room when there are too many keys.
func (e *embedded) evict(opt EmbeddedOptions) {
	keys := e.store.Keys()
	if len(keys) <= opt.MaxKeys || opt.Evictable == "" {
		return
	}
	for _, k := range keys {
		if strings.HasPrefix(k, opt.Evictable) {
			e.store.Del(k)
		}
	}
}

func (e *embedded) close() {
	close(e.stop)
	<-e.done
	e.store.Close()
}
