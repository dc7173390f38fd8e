package config

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

const (
	// watchEvery is how often Watch looks when it is not told.
	watchEvery = time.Second
	// settle is how long a new version must stand before it is used: a file that an editor has emptied and not yet
	// written again is a valid configuration without a single limit.
	settle = 200 * time.Millisecond
)

// Watch loads the file again whenever it, a file it includes or a file that a value names has other contents, and calls
// apply with each good new version. A bad one is logged and refused; what was applied before stays in force. It reads
// all those files each time: contents are compared, so a ConfigMap swapped by symlink and an edit that keeps time and
// size are both seen.
//
// Watch returns when ctx ends. It calls apply from its own goroutine, one call at a time. Changes count from opt.Current
// when that is set, else from what the files hold when Watch starts. every of 0 or less means one second.
func Watch(ctx context.Context, path string, opt Options, every time.Duration, apply func(*Config), log *slog.Logger) {
	if every <= 0 {
		every = watchEvery
	}
	current := opt.Current
	if current == nil {
		current, _ = load(path, opt) // a bad first version is the caller's to report
	}
	sources := current.Sources
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for wait(ctx, ticker.C) {
		if !anyChanged(sources) {
			continue
		}
		next, err := load(path, opt)
		if !wait(ctx, time.After(min(settle, every))) {
			return
		}
		if anyChanged(next.Sources) {
			continue // still being written
		}
		sources = next.Sources
		if err != nil {
			log.ErrorContext(ctx, "new configuration refused, the old one stays", "file", path, "error", err)
			continue
		}
		apply(next)
		log.InfoContext(ctx, "configuration reloaded", "file", path, "warnings", len(next.Warnings))
	}
}

func anyChanged(sources []Source) bool { return slices.ContainsFunc(sources, Source.changed) }

// wait reports whether the channel fired before ctx ended.
func wait(ctx context.Context, fired <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-fired:
		return true
	}
}
