package pipeline

// NodeState is a server as this process sees it.
type NodeState struct {
	Addr      string // host:port, a socket's path, or the name that sentinels know the master by
	Answering bool   // false while its breaker is open: requests do not wait for it
	Late      int    // trips under way whose callers have gone on
}

// Nodes are the servers in use: one, or the masters of a cluster as far as they are known. It does no I/O.
func (b *Backend) Nodes() []NodeState {
	used := []*node{b.one}
	if b.cluster != nil {
		used = b.cluster.inUse()
	}
	list := make([]NodeState, len(used))
	for i, n := range used {
		list[i] = NodeState{Addr: n.addr, Answering: !n.breaker.open(), Late: int(n.late.Load())}
	}
	return list
}
