package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
)

// SIGTERM: not ready at once, the running request comes whole, its settlement is written, the process ends with 0.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	slow := providertest.Chat(providertest.Usage{Prompt: 3, Completion: 4})
	p.Script(func(h providertest.Hit) providertest.Reply {
		r := slow(h)
		r.Delay = 1500 * time.Millisecond
		return r
	})
	x := startProcess(t, s, p, t1+"keys: [{id: k, secret: sk-drain, limits: {budgets: [{usd: 1, per: lifetime}]}}]\ndrain: 20s\n")
	health := regexp.MustCompile(`"health":"([^"]+)"`).FindStringSubmatch(x.Log.String())
	if health == nil {
		t.Fatalf("no health address in the log:\n%s", x.Log)
	}
	ready := func() int {
		resp, err := http.Get("http://" + health[1] + "/readyz") //nolint:noctx // a probe
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if got := ready(); got != 200 {
		t.Fatalf("readyz = %d before", got)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", x.Envoy.URL("/v1/chat/completions"), strings.NewReader(ask(10)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("authorization", "Bearer sk-drain")
	c := client(t)
	done := make(chan answered, 1)
	go func() {
		resp, err := c.Do(req)
		if err != nil {
			done <- answered{Body: err.Error()}
			return
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		done <- answered{resp.StatusCode, resp.Header, string(body)}
	}()
	for range 500 {
		if p.InFlight() == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	x.signal(syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	if got := ready(); got == 200 {
		t.Error("ready while draining")
	}
	if got := <-done; got.Status != 200 || !strings.Contains(got.Body, `"completion_tokens":4`) {
		t.Errorf("the running request got %+v", got)
	}
	<-x.exited
	if code := x.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, x.Log)
	}
	if r := s.settled(1)[0]; r.Outcome != "complete" || r.CostNano != 40_000 {
		t.Errorf("record = %+v", r)
	}
}

// A changed file is in force for the next request, and no counter forgets anything.
func TestReloadKeepsCounters(t *testing.T) {
	t.Parallel()
	s, p := newStores(t), providertest.New(t)
	text := "keys: [{id: k, secret: sk-reload, limits: {budgets: [{usd: 0.02, per: lifetime}]}}]\n"
	r := startReplica(t, s, p, t1+text)
	spend := func(want int) {
		t.Helper()
		if got := r.chat("sk-reload", ask(1000)); got.Status != want {
			t.Fatalf("status %d, want %d: %s", got.Status, want, got.Body)
		}
	}
	reload := func(text string) {
		t.Helper()
		r.app.apply(loadText(t, strings.ReplaceAll("version: 1\n"+t1+text+"redis: {url: '"+s.Proxy.URL()+"', deadline: 10s}\n", "PROVIDER", p.URL())))
	}
	spend(200)
	s.settled(1)
	spend(200)
	s.settled(2)
	spend(429)
	reload(strings.Replace(text, "0.02", "0.03", 1)) // what memory knew of the spent budget is forgotten with it
	spend(200)
	s.settled(3)
	spend(429)
	if v := s.field("tg:{k:k}:b:key:k", "ulifetime.s"); v != "30000000" {
		t.Errorf("spent %s, want 30000000", v)
	}
	reload(strings.Replace(text, "{id: k,", "{id: k, blocked: true,", 1))
	spend(401)
}
