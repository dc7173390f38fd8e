package llamatest

import (
	"context"
	"os"
	"os/exec"
	"testing"
)

// python prepares the run of a script. It skips the test under -short and fails it when the packages are not there.
func python(ctx context.Context, t testing.TB, script string, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Python packages: not under -short")
	}
	interpreter, packages := os.Getenv("TOLLGATE_PYTHON"), os.Getenv("TOLLGATE_PYTHONPATH")
	if interpreter == "" || packages == "" {
		t.Fatal(`TOLLGATE_PYTHON and TOLLGATE_PYTHONPATH are not set: run make test, or eval "$(make -s env)" before go test`)
	}
	cmd := exec.CommandContext(ctx, interpreter, append([]string{"-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}
