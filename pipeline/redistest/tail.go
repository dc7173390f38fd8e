package redistest

import "sync"

// tailSize bounds what is kept of a process' output, in bytes.
const tailSize = 64 << 10

// tail is an io.Writer that keeps the last tailSize bytes. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write keeps the end of p and never fails.
func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, p...)
	if extra := len(w.kept) - tailSize; extra > 0 {
		w.kept = append(w.kept[:0], w.kept[extra:]...)
	}
	return len(p), nil
}

// Reset forgets everything.
func (w *tail) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = w.kept[:0]
}

// String is what was kept.
func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.kept)
}
