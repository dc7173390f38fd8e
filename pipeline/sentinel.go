package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// sentinelTimeout bounds the wait for sentinels to name the master: less than a dial may take, so that there is time left
// for that.
const sentinelTimeout = dialTimeout / 2

// switched is the channel on which a sentinel tells of a new master.
const switched = "+switch-master"

// sentinels know which server is the master. go-redis' own client of them is not used: where no sentinel knows the name
// its error is the one of a key that is not there, so that a write would pass for answered; and one sentinel that hangs
// holds up every new connection.
type sentinels struct {
	name  string
	addrs []string
	ask   func(addr string) *redis.Client
	dial  dialFunc
	// moved replaces the connections, because another server is the master; differs does when it has not just been done.
	moved, differs func()

	at    atomic.Pointer[string] // where the last connection went
	watch sync.Once
	ctx   context.Context //nolint:containedctx // ends with close
	close context.CancelFunc
}

func newSentinels(t *target, dial dialFunc) *sentinels {
	s := &sentinels{name: t.master, addrs: t.hosts, dial: dial}
	asked := *t
	asked.username, asked.password, asked.db = "", "", 0 // those are the master's
	s.ask = func(addr string) *redis.Client { return redis.NewClient(asked.options(addr, dial, 1)) }
	s.ctx, s.close = context.WithCancel(context.Background())
	return s
}

// dialMaster opens a connection to whichever server is the master.
func (s *sentinels) dialMaster(ctx context.Context, network, _ string) (net.Conn, error) {
	s.watch.Do(func() { go s.follow() })
	addr, err := s.master(ctx)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err} // no command was sent yet
	}
	s.movedTo(addr)
	return s.dial(ctx, network, addr)
}

// master asks all sentinels at the same time and believes the first that answers.
func (s *sentinels) master(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, sentinelTimeout)
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(s.addrs))
	var asking sync.WaitGroup
	for _, addr := range s.addrs {
		asking.Go(func() {
			named, err := s.masterBy(ctx, addr)
			answers <- answer{named, err}
		})
	}
	go func() {
		asking.Wait() // those that hang are not waited for by who asks
		cancel()
	}()
	var errs []error
	for range s.addrs {
		select {
		case a := <-answers:
			if a.err == nil {
				return a.addr, nil
			}
			errs = append(errs, a.err)
		case <-ctx.Done():
			return "", errors.Join(append(errs, fmt.Errorf("no sentinel has named the master %q: %w", s.name, ctx.Err()))...)
		}
	}
	return "", errors.Join(errs...)
}

// masterBy is the address of the master by one sentinel. Its error is no reply, whatever the sentinel said: no server
// that has keys said it.
func (s *sentinels) masterBy(ctx context.Context, addr string) (string, error) {
	client := s.ask(addr)
	defer func() { _ = client.Close() }()
	cmd := redis.NewStringSliceCmd(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.name)
	err := client.Process(ctx, cmd)
	var reply redis.Error
	switch named := cmd.Val(); {
	case errors.Is(err, redis.Nil):
		return "", fmt.Errorf("sentinel %s knows no master %q", addr, s.name)
	case errors.As(err, &reply):
		return "", fmt.Errorf("sentinel %s: %s", addr, reply.Error())
	case err != nil:
		return "", fmt.Errorf("sentinel %s: %w", addr, err)
	case len(named) != 2:
		return "", fmt.Errorf("sentinel %s names %q", addr, named)
	default:
		return net.JoinHostPort(named[0], named[1]), nil
	}
}

// follow listens to one sentinel after the other for a new master. An old one that still runs takes writes until somebody
// tells it, and those are lost.
func (s *sentinels) follow() {
	pause := firstPause
	for n := 0; s.ctx.Err() == nil; n++ {
		client := s.ask(s.addrs[n%len(s.addrs)])
		l := subscription{ps: client.Subscribe(s.ctx), got: make(chan any), left: make(chan struct{})}
		if l.open(s.ctx, switched) == nil {
			pause = firstPause
			s.compare() // what was told meanwhile was missed
			l.follow(s.ctx, s.heard)
		}
		l.close()
		_ = client.Close()
		rest(s.ctx, &pause)
	}
}

// heard takes a message: name, old host and port, new host and port.
func (s *sentinels) heard(message string) {
	words := strings.Fields(message)
	if len(words) == 5 && words[0] == s.name {
		addr := net.JoinHostPort(words[3], words[4])
		s.at.Store(&addr)
		s.moved() // also when a new connection has gone there already: others have not
	}
}

// compare asks where the master is now.
func (s *sentinels) compare() {
	if addr, err := s.master(s.ctx); err == nil {
		s.movedTo(addr)
	}
}

// movedTo replaces the connections when they went elsewhere. Sentinels that disagree for a moment must not make it endless.
func (s *sentinels) movedTo(addr string) {
	if was := s.at.Swap(&addr); was != nil && *was != addr {
		s.differs()
	}
}
