package tripcount

import "testing"

func TestCategory(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cmds [][]string
		want category
	}{
		{name: "hello", cmds: [][]string{{"hello", "3"}}, want: setup},
		{name: "auth", cmds: [][]string{{"AUTH", "secret"}}, want: setup},
		{name: "client setinfo", cmds: [][]string{{"client", "setinfo", "LIB-NAME", "x"}}, want: setup},
		{name: "no words", cmds: [][]string{{}}, want: setup},
		{name: "readonly", cmds: [][]string{{"readonly"}}, want: setup},
		{name: "asking alone", cmds: [][]string{{"asking"}}, want: setup},
		{name: "subscribe", cmds: [][]string{{"subscribe", "news"}}, want: setup},
		{name: "cluster slots", cmds: [][]string{{"cluster", "slots"}}, want: topology},
		{name: "cluster shards", cmds: [][]string{{"CLUSTER", "SHARDS"}}, want: topology},
		{name: "command", cmds: [][]string{{"command"}}, want: topology},
		{name: "sentinel", cmds: [][]string{{"sentinel", "get-master-addr-by-name", "m"}}, want: topology},
		{name: "role", cmds: [][]string{{"role"}}, want: topology},
		{name: "handshake and topology", cmds: [][]string{{"hello", "3"}, {"cluster", "slots"}, {"readonly"}}, want: topology},
		{name: "client kill", cmds: [][]string{{"client", "kill", "id", "1"}}, want: work},
		{name: "client alone", cmds: [][]string{{"client"}}, want: work},
		{name: "ping", cmds: [][]string{{"ping"}}, want: work},
		{name: "get", cmds: [][]string{{"get", "hello"}}, want: work},
		{name: "publish", cmds: [][]string{{"publish", "news", "x"}}, want: work},
		{name: "a key after asking", cmds: [][]string{{"asking"}, {"get", "k"}}, want: work},
		{name: "a key between topology", cmds: [][]string{{"cluster", "slots"}, {"get", "k"}, {"role"}}, want: work},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			trip := Trip{Commands: test.cmds}
			if got := trip.category(); got != test.want {
				t.Errorf("category of %q = %d, want %d", test.cmds, got, test.want)
			}
		})
	}
}

func TestUpkeep(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cmd  []string
		want bool
	}{
		{name: "a replica's greeting", cmd: []string{"REPLCONF", "listening-port", "1"}, want: true},
		{name: "a replica's request", cmd: []string{"PSYNC", "?", "-1"}, want: true},
		{name: "a Sentinel's name", cmd: []string{"CLIENT", "SETNAME", "sentinel-0a1b2c3d-cmd"}, want: true},
		{name: "a client's name", cmd: []string{"CLIENT", "SETNAME", "tollgate"}},
		{name: "no name", cmd: []string{"CLIENT", "SETNAME"}},
		{name: "a key named so", cmd: []string{"GET", "SETNAME", "sentinel-x"}},
		{name: "a subscription", cmd: []string{"SUBSCRIBE", "sentinel-x"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := upkeep(test.cmd); got != test.want {
				t.Errorf("upkeep(%q) = %v, want %v", test.cmd, got, test.want)
			}
		})
	}
}
