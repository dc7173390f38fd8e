// Package config reads tollgate's configuration file.
//
// It owns the file's contract: which keys exist, what type each has, which default stands for an absent one, and the
// error (file, line, key) that a wrong one gets. Values are taken as written in the YAML and converted here, never by
// the YAML library, so that "00123" stays text and 1.9 is no integer. Money is int64 nano-dollars from here on.
//
// Load goes in three steps: yaml.go and tree.go make a tree of what is written, with variables put in; the read_ files
// turn it into a Config, key by key; what needs the whole configuration, such as references, is checked last. All
// problems are collected, none ends the others. notyet.go is the table of what is accepted and not built yet.
//
// A Config is immutable once loaded and safe to share between goroutines. The package imports nothing of tollgate.
package config
