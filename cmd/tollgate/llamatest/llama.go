package llamatest

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Model is the name of the model that Start serves. Its answers are words without sense, different for each prompt.
const Model = "tiny"

// startTimeout bounds the start of the server, in which Python loads 100 MB of libraries on a loaded machine.
const startTimeout = 2 * time.Minute

//go:embed testdata/model.py
var modelScript string

//go:embed testdata/server.py
var serverScript string

// Start runs llama.cpp's server until the test ends and returns its address, http://host:port without a path. It speaks
// OpenAI's chat completions, responses and models and Anthropic's messages, with real usage, and knows one model, Model.
// The server's log is printed only when the test fails.
func Start(t testing.TB) string {
	t.Helper()
	model := filepath.Join(t.TempDir(), "tiny.gguf")
	if out, err := python(t.Context(), t, modelScript, model).CombinedOutput(); err != nil {
		t.Fatalf("write the model: %v\n%s", err, out)
	}
	// Its own context: t's is done before the cleanup, which ends the server by closing its standard input.
	ctx, cancel := context.WithCancel(context.Background())
	server := python(ctx, t, serverScript, model)
	log := &bytes.Buffer{}
	server.Stderr = log
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatalf("start llama.cpp: %v", err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatalf("start llama.cpp: %v", err)
	}
	if err := server.Start(); err != nil {
		t.Fatalf("start llama.cpp: %v", err)
	}
	t.Cleanup(func() {
		defer cancel()
		stop(t, server, in)
		if t.Failed() {
			t.Logf("llama.cpp:\n%s", log)
		}
	})
	return await(t, out)
}

// await reads the server's address and waits until it answers: it prints the address before the model is loaded.
func await(t testing.TB, out io.Reader) string {
	t.Helper()
	lines := make(chan string, 1)
	go func() {
		// Whatever else it prints is read, so that it never blocks.
		in := bufio.NewReader(out)
		line, _ := in.ReadString('\n')
		lines <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, in)
	}()
	deadline := time.After(startTimeout)
	var address string
	select {
	case address = <-lines:
	case <-deadline:
	}
	if address == "" {
		t.Fatalf("llama.cpp printed no address within %v", startTimeout)
	}
	for {
		if answer, err := http.Get(address + "/health"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return address
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("llama.cpp at %s was not ready within %v", address, startTimeout)
		}
	}
}

// stop ends the server: by itself when its standard input ends, by force when that takes long.
func stop(t testing.TB, server *exec.Cmd, in io.Closer) {
	in.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// Its exit status says nothing that the test has not seen.
		_ = server.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(2 * time.Second):
		if err := server.Process.Kill(); err != nil {
			t.Logf("kill llama.cpp: %v", err)
		}
		<-ended
	}
}
