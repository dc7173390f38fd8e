package redistest

// Option changes what StartCluster, StartSentinel or StartReplicated starts.
type Option func(*setup)

// setup is what options have chosen.
type setup struct {
	kind    Kind
	proxied bool
	args    []string
}

func chosen(opts []Option) setup {
	s := setup{kind: Redis}
	for _, option := range opts {
		option(&s)
	}
	return s
}

// Proxied puts a counting proxy in front of every node, which announces the proxy's port as its own: clients that learn
// addresses from CLUSTER SLOTS, MOVED, ASK or a Sentinel go through it. So does replication.
func Proxied(s *setup) { s.proxied = true }

// On takes another kind of server.
func On(kind Kind) Option { return func(s *setup) { s.kind = kind } }

// Args are passed to every server that holds data, and win over the defaults.
func Args(args ...string) Option {
	return func(s *setup) { s.args = append(s.args, args...) }
}
