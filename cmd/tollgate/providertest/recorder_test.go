package providertest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
)

func TestRecorderKeepsBothBodies(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	r := providertest.NewRecorder(t, p.URL())
	for i, body := range []string{chatBody, streamBody} {
		_, direct, err := post(t.Context(), p.URL(), body)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := post(t.Context(), r.URL(), body)
		if err != nil || got != direct {
			t.Fatalf("through the recorder: %q, error %v; want %q", got, err, direct)
		}
		exchange := r.Exchanges()[i]
		if exchange.Method != http.MethodPost || exchange.Path != "/v1/chat/completions" || exchange.Status != 200 || !exchange.Whole {
			t.Errorf("exchange is %+v", exchange)
		}
		if diff := cmp.Diff(body, string(exchange.Request)); diff != "" {
			t.Errorf("request kept (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(direct, string(exchange.Response)); diff != "" {
			t.Errorf("response kept (-want +got):\n%s", diff)
		}
	}
	r.Reset()
	if got := len(r.Exchanges()); got != 0 {
		t.Errorf("%d exchanges after Reset", got)
	}
}

func TestRecorderStreamsAndSeesTheClientGo(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	reply := providertest.SSE("data: 1")
	reply.Break = providertest.HangAfterBody
	p.Answer(reply)
	r := providertest.NewRecorder(t, p.URL())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	answer, got, err := post(ctx, r.URL(), "{}")
	if answer == nil || got != "data: 1\n\n" || err == nil {
		t.Errorf("read %q, error %v; want the event, then a timeout", got, err)
	}
	hits := p.Wait(1, 5*time.Second)
	if len(hits) != 1 || !hits[0].Gone {
		t.Errorf("hits are %+v: the upstream is not told that the client went", hits)
	}
	if exchange := r.Exchanges()[0]; exchange.Whole || string(exchange.Response) != "data: 1\n\n" {
		t.Errorf("exchange is %+v, want the event and not whole", exchange)
	}
}

func TestRecorderWithoutUpstream(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	p.Answer(providertest.Reply{Break: providertest.ResetBeforeHeaders})
	r := providertest.NewRecorder(t, p.URL())
	answer, _, err := post(t.Context(), r.URL(), "{}")
	if err != nil || answer.StatusCode != http.StatusBadGateway || r.Exchanges()[0].Status != http.StatusBadGateway {
		t.Errorf("answer is %+v, error %v, exchange %+v; want 502", answer, err, r.Exchanges()[0])
	}
}
