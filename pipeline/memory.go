package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Memory is what a server says of its memory, in bytes. A Max of 0 sets no bound.
type Memory struct{ Used, Max int64 }

// Memory asks each server that commands go to, all of them at the same time, within the deadline: of a cluster every
// master. The list holds what those said that answered, and the error says why others did not: [ErrUnavailable], or a
// reply such as NOPERM. The in-process store says nothing.
func (b *Backend) Memory(ctx context.Context) ([]Memory, error) {
	if b.Embedded() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.deadline)
	defer cancel()
	nodes := b.nodes(ctx)
	if len(nodes) == 0 {
		return nil, unavailable(errNoNodes)
	}
	all, errs := make([]Memory, len(nodes)), make([]error, len(nodes))
	var asking sync.WaitGroup
	for i, n := range nodes {
		asking.Go(func() { all[i], errs[i] = n.memory(ctx) })
	}
	asking.Wait()
	var list []Memory
	for i, m := range all {
		if errs[i] == nil {
			list = append(list, m)
		}
	}
	return list, errors.Join(errs...)
}

// SharesMemory says whether two backends fill the memory of the same server: two databases of one do. A server that is
// named in two ways is not recognised.
func (b *Backend) SharesMemory(other *Backend) bool {
	return b == other || b.target.sameServer(other.target)
}

func (n *node) memory(ctx context.Context) (m Memory, err error) {
	info, err := n.memoryInfo(ctx)
	if err != nil {
		return m, err
	}
	for name, into := range map[string]*int64{"used_memory": &m.Used, "maxmemory": &m.Max} {
		value, told := info[name]
		if !told {
			return m, errors.New("INFO memory lacks used_memory or maxmemory")
		}
		if *into, err = strconv.ParseInt(value, 10, 64); err != nil {
			return m, fmt.Errorf("INFO memory says %s:%s", name, value)
		}
	}
	return m, nil
}

// memoryInfo is what the server says to INFO memory, by name. The error is its own reply, or wraps [ErrUnavailable].
func (n *node) memoryInfo(ctx context.Context) (map[string]string, error) {
	text, err := n.client.Load().Info(ctx, "memory").Result()
	switch {
	case isReply(err):
		return nil, err
	case err != nil:
		return nil, unavailable(err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}
