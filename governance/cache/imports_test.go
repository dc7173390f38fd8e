package cache

import (
	"go/build"
	"strings"
	"testing"
)

// TestImports keeps doc.go true: of tollgate, only config and usage.
func TestImports(t *testing.T) {
	t.Parallel()
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/tollgate-proxy/tollgate/"
	for _, path := range pkg.Imports {
		switch name, ours := strings.CutPrefix(path, module); {
		case !ours, name == "governance/config", name == "governance/usage":
		default:
			t.Errorf("imports %s", path)
		}
	}
}
