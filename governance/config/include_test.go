package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// loadDir loads main.yaml of a directory; errors come back with the directory cut off.
func loadDir(t *testing.T, files map[string]string) (*Config, string) {
	t.Helper()
	dir := write(t, files)
	c, err := Load(filepath.Join(dir, "main.yaml"), Options{Env: lookup(nil)})
	if err != nil {
		return nil, strings.ReplaceAll(err.Error(), dir+"/", "")
	}
	return c, ""
}

func TestIncludeJoins(t *testing.T) {
	t.Parallel()
	c, problems := loadDir(t, map[string]string{
		"main.yaml":     "include: ['conf.d/*.yaml', 'none/*.yaml', 'conf.d/a.yaml']\nteams: [{id: main}]\nprices: {openai/m: {input: 1, output: 1}}\n",
		"conf.d/a.yaml": "version: 1\nteams: [{id: a}]\nkeys: [{id: ka, secret: 'file:key', team: b}]\nprices: {openai/a: {input: 2, output: 1}}\n",
		"conf.d/b.yaml": "include: [deeper/*.yml]\nteams: [{id: b}]\n",
		// The including file's folder counts, and a circle of includes ends.
		"conf.d/deeper/c.yml": "include: ['../*.yaml', '../../main.yaml']\norgs: [{id: c}]\n",
		"conf.d/key":          "s3cret\n",
		"conf.d/d.txt":        "nonsense",
	})
	if problems != "" {
		t.Fatal(problems)
	}
	var teams []string
	for _, team := range c.Teams {
		teams = append(teams, team.ID)
	}
	if diff := cmp.Diff([]string{"main", "a", "b"}, teams); diff != "" {
		t.Errorf("teams (-want +got):\n%s", diff)
	}
	if len(c.Prices) != 2 || len(c.Orgs) != 1 || c.Keys[0].SecretSHA256 != sha("s3cret") {
		t.Errorf("prices %v, orgs %v, keys %v", c.Prices, c.Orgs, c.Keys)
	}
}

func TestIncludeProblems(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{
			"one id in two files",
			map[string]string{"main.yaml": "include: ['*.yml']\nteams:\n- id: a\n", "x.yml": "\nteams: [{id: a}]\n"},
			`x.yml:2: teams[0].id: team "a" stands twice; first in main.yaml:3`,
		},
		{
			"one price in two files",
			map[string]string{"main.yaml": "include: ['*.yml']\nprices:\n  openai/m: {input: 1, output: 1}\n", "x.yml": "prices:\n  openai/m: {input: 1, output: 1}\n"},
			`x.yml:2: prices.openai/m: price "openai/m" stands twice; first in main.yaml:3`,
		},
		{
			"one secret in two files",
			map[string]string{"main.yaml": "include: ['*.yml']\nkeys: [{id: a, secret: s}]\n", "x.yml": "keys: [{id: b, secret: s}]\n"},
			`x.yml:1: keys[0].secret: two keys with the same secret; the other is keys[0] in main.yaml:2`,
		},
		{
			"a setting",
			map[string]string{"main.yaml": "include: ['*.yml']\n", "x.yml": "version: 1\nenforce: off\n"},
			`x.yml:2: enforce: unknown in an included file, which adds only rows such as teams, keys and prices; the nearest known key is "orgs"`,
		},
		{
			"bad YAML",
			map[string]string{"main.yaml": "include: ['*.yml']\ndrain: 5\n", "x.yml": "a: {\n"},
			"main.yaml:2: drain: must be a duration such as 100ms, 30s, 5m, 12h or 400d\nx.yml:1: not valid YAML: could not find flow mapping end token '}'",
		},
		{
			"version",
			map[string]string{"main.yaml": "include: ['*.yml']\n", "x.yml": "version: 3\n"},
			"x.yml:1: version: must be 1, the only version there is",
		},
		{
			"pattern",
			map[string]string{"main.yaml": "include: ['[']\n"},
			"main.yaml:1: include[0]: must be a file name or a pattern such as conf.d/*.yaml",
		},
		{
			"folder",
			map[string]string{"main.yaml": "include: ['sub']\n", "sub/x.yml": ""},
			"main.yaml:1: include[0]: sub is not a regular file",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, got := loadDir(t, test.files); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestFileTooLarge(t *testing.T) {
	t.Parallel()
	path := filepath.Join(write(t, map[string]string{"main.yaml": ""}), "main.yaml")
	if err := os.Truncate(path, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, Options{}); err == nil || !strings.HasSuffix(err.Error(), "is larger than 16 MiB") {
		t.Errorf("error %v", err)
	}
}
