package usage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// fixture is one entry of testdata/manifest.json.
type fixture struct {
	File         string
	Kind         string // request, response, stream, error or hostile
	Model        string
	Stream       bool
	OutputCap    int64  `json:"output_cap"`
	Choices      int64  // 0: not said
	EndUser      string `json:"end_user"`
	IncludeUsage bool   `json:"include_usage"`
	Usage        *struct {
		InputTotal     int64 `json:"input_total"`
		CacheRead      int64 `json:"cache_read"`
		CacheWriteBase int64 `json:"cache_write_base"`
		CacheWrite1h   int64 `json:"cache_write_1h"`
		CacheWrite12h  int64 `json:"cache_write_12h"`
		OutputTotal    int64 `json:"output_total"`
		Reasoning      int64
	}
	ServiceTier string `json:"service_tier"`
	Complete    bool
	TextBytes   int64  `json:"text_bytes"` // 0: not said
	ErrorType   string `json:"error_type"`

	body []byte
}

// usage is the expected usage in the normal form.
func (f *fixture) usage() (Usage, bool) {
	u := f.Usage
	if u == nil {
		return Usage{}, false
	}
	return Usage{
		Input: u.InputTotal, CacheRead: u.CacheRead, CacheWrite: u.CacheWriteBase, CacheWrite1h: u.CacheWrite1h,
		CacheWrite12h: u.CacheWrite12h, Output: u.OutputTotal, Reasoning: u.Reasoning,
	}, true
}

// fixtures loads those of the given kinds.
func fixtures(t testing.TB, kinds ...string) []fixture {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all, found []fixture
	if err := json.Unmarshal(manifest, &all); err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, kind := range kinds {
			if f.Kind != kind {
				continue
			}
			if f.body, err = os.ReadFile(filepath.Join("testdata", f.File)); err != nil {
				t.Fatal(err)
			}
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no fixture of kinds %q", kinds)
	}
	return found
}
