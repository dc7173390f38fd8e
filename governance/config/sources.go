package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxFile bounds a configuration file and a file that a value names. A hundred thousand keys need about 10 MiB.
const maxFile = 16 << 20

// Source is one file, or one pattern of files, that a configuration was made from, as it was found.
type Source struct {
	Path string
	Glob bool // Path is a pattern of `include`; Sum is that of the names it matched
	// Sum is the SHA-256 of the contents. A file that could not be read has the zero sum.
	Sum [sha256.Size]byte
}

// changed reports whether reading s again gives something else. It compares contents, not times: a ConfigMap that
// Kubernetes swaps in by symlink can carry an older time, and an edit in place can keep time and size.
func (s Source) changed() bool {
	if s.Glob {
		_, now := globSource(s.Path)
		return now.Sum != s.Sum
	}
	_, now, _ := readSource(s.Path)
	return now.Sum != s.Sum
}

// readSource reads a regular file. The source is valid also when the file cannot be read.
func readSource(path string) ([]byte, Source, error) {
	source := Source{Path: path}
	data, err := readRegular(path)
	if err != nil {
		return nil, source, err
	}
	source.Sum = sha256.Sum256(data)
	return data, source, nil
}

// readRegular refuses what is no regular file before it opens it: opening a named pipe would block for ever.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return data, nil
}

// globSource lists the files that match pattern, sorted. A pattern that is malformed matches nothing; the caller has
// checked it with filepath.Match.
func globSource(pattern string) ([]string, Source) {
	matches, _ := filepath.Glob(pattern)
	return matches, Source{Path: pattern, Glob: true, Sum: sha256.Sum256([]byte(strings.Join(matches, "\x00")))}
}
