package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/llamatest"
	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
	"github.com/tollgate-proxy/tollgate/governance/usage"
)

// Real parts at both ends: the official OpenAI client, Envoy, the built tollgate, and llama.cpp's own server. What the
// books hold is, to the token, what llama.cpp reported on the wire behind tollgate; a stream whose client did not ask
// for usage shows it none.
func TestOfficialClientToLlama(t *testing.T) {
	t.Parallel()
	s := newStores(t)
	recorder := providertest.NewRecorder(t, llamatest.Start(t))
	r := startRun(t, runConfig+`
redis: {url: '`+s.Proxy.URL()+`', deadline: 10s}
models:
  - name: small
    deployments:
      - {name: llama, url: "`+recorder.URL()+`/v1", dialect: openai, model: `+llamatest.Model+`, price: {input: 1, output: 2}}
teams: [{id: team, limits: {budgets: [{usd: 1, per: day}], rpm: 100, tpm: 100000}}]
keys: [{id: k, secret: sk-llama, team: team, limits: {budgets: [{usd: 1, per: month}]}}]
`)
	gateway := regexp.MustCompile(`http://[^/ ]+`).FindString(r.line("curl"))
	got := llamatest.OpenAIClient(t, gateway+"/v1", "sk-llama",
		llamatest.Call{Model: "small", Prompt: "the toll gate", MaxTokens: 12},
		llamatest.Call{Model: "small", Prompt: "count the tokens", MaxTokens: 9, Stream: true},
		llamatest.Call{Model: "small", Prompt: "and once more", MaxTokens: 7, Stream: true, IncludeUsage: true},
		llamatest.Call{Model: "large", Prompt: "not there"},
	)
	for i, x := range got[:3] {
		if x.Error != nil || x.Text == "" {
			t.Fatalf("call %d: %+v, error %+v", i, x, x.Error)
		}
	}
	if got[1].Usage != nil || got[0].Usage == nil || got[2].Usage == nil {
		t.Errorf("usage as the client saw it: %v, %v, %v; want none in the second alone", got[0].Usage, got[1].Usage, got[2].Usage)
	}
	if e := got[3].Error; e == nil || e.Class != "NotFoundError" || e.Code != "model_not_found" {
		t.Errorf("unknown model: %+v", e)
	}

	var reported []usage.Usage
	for _, x := range recorder.Exchanges() {
		if strings.HasSuffix(x.Path, "/chat/completions") {
			reported = append(reported, reportedBy(t, x))
		}
		if a := x.Header.Get("authorization"); strings.Contains(a, "sk-llama") {
			t.Error("the client's key reached the upstream")
		}
	}
	if len(reported) != 3 {
		t.Fatalf("%d calls reached llama.cpp, want 3", len(reported))
	}
	total := int64(0)
	left := append([]usage.Usage(nil), reported...)
	for _, record := range s.settled(3) {
		u := usage.Usage{Input: record.Input, CacheRead: record.CacheRead, Output: record.Output}
		found := false
		for i, want := range left {
			if found = u == want; found {
				left = append(left[:i], left[i+1:]...)
				break
			}
		}
		if !found || record.Estimated || record.Outcome != "complete" {
			t.Errorf("record %+v: llama.cpp reported %+v", record, reported)
		}
		total += record.CostNano
	}
	want := int64(0)
	for _, u := range reported {
		want += u.Input*1000 + u.Output*2000
	}
	if total != want {
		t.Errorf("cost %d nano-dollars, want %d", total, want)
	}
	r.signal(syscall.SIGTERM)
	<-r.exited
}

// reportedBy is the usage in an answer of llama.cpp, read here without tollgate's reader.
func reportedBy(t *testing.T, x providertest.Exchange) usage.Usage {
	t.Helper()
	type answer struct {
		Usage *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Details    struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	var found usage.Usage
	for _, line := range strings.Split(string(x.Response), "\n") {
		line = strings.TrimPrefix(line, "data: ")
		var a answer
		if json.Unmarshal([]byte(line), &a) == nil && a.Usage != nil {
			found = usage.Usage{Input: a.Usage.Prompt, Output: a.Usage.Completion, CacheRead: a.Usage.Details.Cached}
		}
	}
	if found.Output == 0 {
		t.Fatalf("llama.cpp reported no usage: %s", x.Response)
	}
	return found
}
