package config

import (
	"fmt"
	"os"
	"path/filepath"

	_ "time/tzdata" // time zones work in images that have no zoneinfo
)

// Options say how a file is loaded.
type Options struct {
	// Static accepts unset variables and absent files; what they would give stays empty and is listed in
	// Config.Missing. It is for checking a file away from where it runs.
	Static bool
	// Env looks a variable up. Nil means os.LookupEnv.
	Env func(string) (string, bool)
	// Current is, for Watch only, the configuration in force. Nil means what Watch finds when it starts.
	Current *Config
}

// Load reads the file and what it includes, checks everything and fills the defaults in. Its error is Problems, with
// all that is wrong, unless the file itself cannot be read.
func Load(path string, opt Options) (*Config, error) {
	c, err := load(path, opt)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// load is Load, but gives also with an error as much of the configuration as Watch needs: the sources.
func load(path string, opt Options) (*Config, error) {
	data, source, err := readSource(path)
	if err != nil {
		return &Config{File: path, Sources: []Source{source}}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := parse(path, data, opt)
	c.Sources = append([]Source{source}, c.Sources...)
	return c, err
}

// parse makes a configuration of the main file's contents.
func parse(path string, data []byte, opt Options) (*Config, error) {
	d := &decoder{cfg: Default(), env: opt.Env, seen: make(map[string]map[string]*node), resolved: make(map[string]bool)}
	if d.env == nil {
		d.env = os.LookupEnv
	}
	d.cfg.File = path
	d.first(path)
	d.file(path, data, true)
	d.gatherNames()
	for _, check := range d.later {
		check()
	}
	c := d.cfg
	if !opt.Static {
		d.errs = append(d.errs, c.Missing...)
	}
	for _, found := range [][]Finding{d.errs, c.NotYet, c.Missing, c.Warnings} {
		sortFindings(found, d.files)
	}
	if len(d.errs) > 0 {
		return c, d.errs
	}
	return c, nil
}

// file reads one file: the main one, or one that is included and has only rows.
func (d *decoder) file(path string, data []byte, main bool) {
	d.files = append(d.files, path)
	root, problem := parseYAML(data)
	if problem != nil {
		problem.File = path
		d.errs = append(d.errs, *problem)
		return
	}
	n := d.tree(root, path, "", 0)
	s := d.section(n)
	s.version()
	if main {
		d.settings(s)
	} else {
		// With two files setting one value, nobody could say which counts.
		s.unknown = "unknown in an included file, which adds only rows such as teams, keys and prices"
	}
	d.models(s)
	d.tables(s)
	d.identities(s)
	include := s.items("include")
	s.done()
	d.cfg.NotYet = append(d.cfg.NotYet, pending(n)...)
	for _, item := range include {
		d.include(item)
	}
}

// include reads the files of one pattern, which counts from the file it stands in. A file that two patterns match is
// read once; a pattern without match is no error.
func (d *decoder) include(item *node) {
	pattern, ok := d.ruled(item, textRule)
	if !ok {
		return
	}
	pattern = item.path(pattern)
	if _, err := filepath.Match(pattern, ""); err != nil {
		d.fail(item, "must be a file name or a pattern such as conf.d/*.yaml")
		return
	}
	matches, source := globSource(pattern)
	d.cfg.Sources = append(d.cfg.Sources, source)
	for _, path := range matches {
		if !d.first(path) {
			continue
		}
		data, source, err := readSource(path)
		d.cfg.Sources = append(d.cfg.Sources, source)
		if err != nil {
			d.fail(item, "%v", err)
			continue
		}
		d.file(path, data, false)
	}
}

// first reports whether no file of this real name was read before.
func (d *decoder) first(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path // reading it will say why
	}
	if absolute, err := filepath.Abs(real); err == nil {
		real = absolute
	}
	seen := d.resolved[real]
	d.resolved[real] = true
	return !seen
}
