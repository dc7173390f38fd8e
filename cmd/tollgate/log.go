package main

import (
	"io"
	"log/slog"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// newLog makes the structured log that the configuration asks for.
func newLog(w io.Writer, cfg config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // the configuration has checked it
	}
	opt := &slog.HandlerOptions{Level: level}
	if cfg.Format == "text" {
		return slog.New(slog.NewTextHandler(w, opt))
	}
	return slog.New(slog.NewJSONHandler(w, opt))
}
