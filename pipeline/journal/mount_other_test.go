//go:build !linux

package journal

import "errors"

// Both need mounts of their own.
func mountRole(string) error { return errors.New("only on linux") }
func fullRole(string) error  { return errors.New("only on linux") }
