package redistest

import "testing"

func TestParseView(t *testing.T) {
	t.Parallel()
	got := parseView(`aa 127.0.0.1:30004@31004,host slave bb 0 1426238317239 4 connected
bb 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-92 [93->-cc] 94 100-5460
cc 127.0.0.1:30002@31002 master - 0 1426238316232 2 connected
`)
	want := view{
		"aa": {follows: "bb", slots: []string{}},
		"bb": {follows: "-", slots: []string{"0-92", "94", "100-5460"}},
		"cc": {follows: "-", slots: []string{}},
	}
	if len(got) != len(want) {
		t.Errorf("%d nodes, want %d", len(got), len(want))
	}
	for id, m := range want {
		if !m.equal(got[id]) {
			t.Errorf("node %s is %+v, want %+v", id, got[id], m)
		}
	}
	for slot, owner := range map[int]string{0: "bb", 92: "bb", 93: "", 94: "bb", 99: "", 100: "bb", 5460: "bb", 5461: ""} {
		if id := got.owner(slot); id != owner {
			t.Errorf("owner of %d = %q, want %q", slot, id, owner)
		}
	}
}
