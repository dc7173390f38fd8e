package refusal_test

import (
	"go/build"
	"strings"
	"testing"
)

// TestImports keeps doc.go true: of tollgate, only package usage.
func TestImports(t *testing.T) {
	t.Parallel()
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/tollgate-proxy/tollgate/"
	for _, path := range pkg.Imports {
		if strings.HasPrefix(path, module) && path != module+"governance/usage" {
			t.Errorf("imports %s", path)
		}
	}
}
