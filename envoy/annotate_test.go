package envoy

import (
	"strings"
	"testing"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// TestEveryNoteIsPrinted keeps the explanations from outliving the fields they explain.
func TestEveryNoteIsPrinted(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{
		Gateway: config.Gateway{Address: "127.0.0.1:8080"},
		Models:  []config.Model{{Name: "m", Deployments: []config.Deployment{{Name: "a", URL: "https://a.example"}}}},
	}
	static, err := Bootstrap(cfg, BootstrapOptions{Processor: Upstream{Address: "127.0.0.1:9901"}})
	if err != nil {
		t.Fatal(err)
	}
	dynamic, err := Bootstrap(cfg, BootstrapOptions{
		Processor: Upstream{Address: "127.0.0.1:9901"}, XDS: Upstream{Address: "127.0.0.1:9903"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range notes {
		if !strings.Contains(string(static)+string(dynamic), "# "+n.text+"\n") {
			t.Errorf("the note on %q is on no line", n.start)
		}
	}
}
