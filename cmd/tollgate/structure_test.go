package main

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tollgate-proxy/tollgate/"

// rank is the order of the rooms: a package imports its own room and those of a lower rank.
var rank = map[string]int{"cmd": 4, "extproc": 3, "governance": 2, "pipeline": 1}

// concerns are the packages of governance with what each may import of tollgate, as their docs say.
var concerns = map[string][]string{
	"config":   {},
	"usage":    {},
	"ledger":   {"usage"},
	"refusal":  {"usage"},
	"price":    {"config", "usage"},
	"cache":    {"config", "usage"},
	"identity": {"config", "limit", "refusal"},
	"routing":  {"config", "refusal", "usage"},
	"limit":    {"config", "refusal", "usage"},
}

// TestStructure keeps the shape of the project: each package says what it is for, and imports point one way.
func TestStructure(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	packages := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != root && strings.HasPrefix(name, ".") && name != ".." || name == "testdata" {
			return fs.SkipDir
		}
		p, err := build.ImportDir(path, build.ImportComment)
		if err != nil {
			return nil //nolint:nilerr // a folder without Go files
		}
		packages++
		if doc := p.Doc; !strings.HasPrefix(doc, "Package "+p.Name+" ") && !strings.HasPrefix(doc, "Command ") {
			t.Errorf("%s: no package doc that begins with its name: %q", path, doc)
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		room, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		for _, i := range p.Imports {
			inner, ours := strings.CutPrefix(i, module)
			if !ours {
				continue
			}
			to, _, _ := strings.Cut(inner, "/")
			if !mayImport(room, to, inner) {
				t.Errorf("%s imports %s against the grain", rel, inner)
			}
			concern, below := strings.CutPrefix(filepath.ToSlash(rel), "governance/")
			beside, ok := strings.CutPrefix(inner, "governance/")
			if below && ok && !slices.Contains(concerns[concern], beside) {
				t.Errorf("%s imports %s: its doc says otherwise", rel, inner)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if packages < 15 {
		t.Errorf("only %d packages were looked at", packages)
	}
}

// mayImport says whether a package of one room may import another; envoy stands beside the others.
func mayImport(room, to, path string) bool {
	switch {
	case room == "cmd" || room == to:
		return true
	case room == "envoy":
		return path == "governance/config"
	case to == "envoy":
		return false
	}
	return rank[to] < rank[room]
}
