package pipeline

import "flag"

// The property tests run against a real server, with pauses: a few checks find what there is to find. -rapid.checks on the
// command line wins, and the seed that a failure prints is enough to repeat it.
func init() {
	for name, value := range map[string]string{"rapid.checks": "40", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err) //nolint:forbidigo // no test has begun
		}
	}
}
