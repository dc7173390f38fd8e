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
	info, err := n.client.Load().Info(ctx, "memory").Result()
	if err != nil {
		if isReply(err) {
			return m, err
		}
		return m, unavailable(err)
	}
	found := 0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		var into *int64
		switch name {
		case "used_memory":
			into = &m.Used
		case "maxmemory":
			into = &m.Max
		default:
			continue
		}
		if *into, err = strconv.ParseInt(value, 10, 64); err != nil {
			return m, fmt.Errorf("INFO memory says %s", line)
		}
		found++
	}
	if found != 2 {
		return m, errors.New("INFO memory lacks used_memory or maxmemory")
	}
	return m, nil
}
