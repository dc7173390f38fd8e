package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/envoy/envoytest"
)

// runConfig is a configuration without deployments on ports that the kernel chooses.
const runConfig = "version: 1\nlisten: {health: '127.0.0.1:0', admin: '127.0.0.1:0'}\ngateway: {address: '127.0.0.1:0'}\nlog: {level: warn, format: text}\n"

// running is a `tollgate run` in a process group of its own, as a shell would start it.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Scanner
	stderr *syncBuffer
	exited chan struct{}
}

func startRun(t *testing.T, config string) *running {
	t.Helper()
	path := binary(t)
	envoytest.Binary(t)
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, stderr: new(syncBuffer), exited: make(chan struct{})}
	r.cmd = exec.CommandContext(context.Background(), path, "run", "--config", file)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.Stderr = r.stderr
	out, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stdout = write
	r.stdout = bufio.NewScanner(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close() // the child has it
	go func() {
		_ = r.cmd.Wait() // its exit code is looked at by the test
		close(r.exited)
	}()
	t.Cleanup(func() {
		r.signal(syscall.SIGKILL)
		<-r.exited
		_ = out.Close()
		if t.Failed() {
			t.Logf("standard error of tollgate run:\n%s", r.stderr)
		}
	})
	return r
}

// signal goes to the whole group, as Ctrl-C does.
func (r *running) signal(sig syscall.Signal) { _ = syscall.Kill(-r.cmd.Process.Pid, sig) }

// line is the next line of standard output that has the given text.
func (r *running) line(with string) string {
	r.t.Helper()
	for r.stdout.Scan() {
		if strings.Contains(r.stdout.Text(), with) {
			return r.stdout.Text()
		}
	}
	r.t.Fatalf("no line with %q on standard output; standard error:\n%s", with, r.stderr)
	return ""
}

// rest is the remaining standard output, once the process has ended.
func (r *running) rest() string {
	var b strings.Builder
	for r.stdout.Scan() {
		fmt.Fprintln(&b, r.stdout.Text())
	}
	return b.String()
}

func TestRunPrintsALineThatAnswers(t *testing.T) {
	t.Parallel()
	r := startRun(t, runConfig)
	curl := r.line("") // the very first line
	if !regexp.MustCompile(`^curl .*-H 'Authorization: Bearer sk-tg-\w+' -d '\{"model": "demo", .*\}'$`).MatchString(curl) {
		t.Fatalf("first line: %s", curl)
	}
	out, err := exec.CommandContext(t.Context(), "bash", "-c", curl+" -sS -f").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"object":"chat.completion"`) {
		t.Fatalf("%s\n%v: %s", curl, err, out)
	}
	url := regexp.MustCompile(`http://\S+`).FindString(curl)
	key := regexp.MustCompile(`Bearer (\S+)'`).FindStringSubmatch(curl)[1]
	health := strings.Fields(r.line("health"))[1]
	if resp, err := http.Get(health); err != nil || resp.StatusCode != 200 { //nolint:noctx // a probe
		t.Errorf("GET %s: %v, %v", health, resp, err)
	}

	// Ctrl-C in the middle of a stream: it comes whole, is settled, and then everything stops.
	req, _ := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(`{"model":"demo","stream":true,"messages":[{"role":"user","content":"a long one, please"}]}`))
	req.Header.Set("authorization", "Bearer "+key)
	resp, err := client(t).Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("stream: %v, %v", resp, err)
	}
	r.signal(syscall.SIGINT)
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		t.Errorf("the stream was cut: %v\n%s", err, body)
	}
	rest := r.rest()
	<-r.exited
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, r.stderr)
	}
	if !regexp.MustCompile(`settled 2 requests \(0 from the cache\), \d+ input and \d+ output tokens\nspent \$0\.\d+\n$`).MatchString(rest) {
		t.Errorf("last lines:\n%s", rest)
	}
	if _, err := net.Dial("tcp", strings.Split(strings.TrimPrefix(url, "http://"), "/")[0]); err == nil {
		t.Error("envoy still listens")
	}
}

func TestRunEndsEnvoyEvenWhenKilled(t *testing.T) {
	t.Parallel()
	r := startRun(t, runConfig)
	fields := strings.Fields(r.line("envoy"))
	pid := 0
	if _, err := fmt.Sscan(fields[len(fields)-1], &pid); err != nil {
		t.Fatalf("%v: %v", fields, err)
	}
	if group, err := syscall.Getpgid(pid); err != nil || group == r.cmd.Process.Pid {
		t.Errorf("envoy is in group %d of tollgate, %v: Ctrl-C would cut its streams", group, err)
	}
	_ = r.cmd.Process.Signal(syscall.SIGKILL)
	<-r.exited
	for range 500 {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("envoy outlived tollgate")
}

// What is wrong is said in one clear line.
func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	envoytest.Binary(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	in := func(key string) string {
		return strings.Replace(runConfig, key+": '127.0.0.1:0'", key+": '"+taken.Addr().String()+"'", 1)
	}
	for _, tt := range []struct {
		name, config string
		env          []string
		code         int
		want         string // the whole of standard error, as a pattern
	}{
		{"gateway port in use", in("address"), os.Environ(), 1, `^tollgate: gateway address \S+ is in use\n$`},
		{"health port in use", in("health"), os.Environ(), 1, `^tollgate: listen.health: \S+ is in use\n$`},
		{"no envoy", runConfig, []string{"PATH=/nonexistent"}, 1, `^tollgate: no envoy binary: .*\n$`},
		{"unknown key", runConfig + "budgts: 1\n", os.Environ(), 2, `^\S+tollgate.yaml:5: budgts: unknown key.*\n$`},
		{"not built yet", runConfig + "routing: envoy\n", os.Environ(), 2, `^\S+tollgate.yaml:5: routing: not yet: .*\n$`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "tollgate.yaml")
			if err := os.WriteFile(file, []byte(tt.config), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), binary(t), "run", "--config", file)
			cmd.Env = tt.env
			var stderr strings.Builder
			cmd.Stderr = &stderr
			_ = cmd.Run() // the code is compared below
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !regexp.MustCompile(tt.want).MatchString(stderr.String()) {
				t.Errorf("exit code %d, want %d; standard error:\n%s", code, tt.code, &stderr)
			}
		})
	}
}
