package providertest_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollgate-proxy/tollgate/cmd/tollgate/providertest"
)

const (
	chatBody   = `{"model":"t1","max_tokens":1000,"messages":[{"role":"user","content":"hi"}]}`
	streamBody = `{"model":"t1","max_completion_tokens":7,"n":2,"stream":true,"stream_options":{"include_usage":true}}`
)

// post sends a chat and reads the answer; the error is that of sending or reading.
func post(ctx context.Context, url, body string) (*http.Response, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	return answer, string(read), err
}

func TestProviderDefault(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body, want string
		usage            providertest.Usage
	}{
		{
			name: "JSON", body: chatBody, usage: providertest.Usage{Prompt: 10, Completion: 1000},
			want: `{"id":"chatcmpl-test","object":"chat.completion","created":1700000000,"model":"t1",` +
				`"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"logprobs":null,"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":10,"completion_tokens":1000,"total_tokens":1010}}`,
		},
		{
			name: "SSE", body: streamBody, usage: providertest.Usage{Prompt: 10, Completion: 14},
			want: strings.ReplaceAll(`data: {HEAD,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}

data: {HEAD,"choices":[{"index":0,"delta":{"content":"o"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {HEAD,"choices":[{"index":0,"delta":{"content":"k"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {HEAD,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}

data: {HEAD,"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":14,"total_tokens":24}}

data: [DONE]

`, "HEAD", `"id":"chatcmpl-test","object":"chat.completion.chunk","created":1700000000,"model":"t1"`),
		},
		{
			name: "no JSON", body: `{`,
			want: `{"error":{"message":"body is no JSON","type":"invalid_request_error","param":null,"code":null}}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := providertest.New(t)
			_, got, err := post(t.Context(), p.URL(), test.body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.usage, p.Wait(1, 5*time.Second)[0].Reply.Usage); diff != "" {
				t.Errorf("usage of the hit (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.usage, p.Reported()); diff != "" {
				t.Errorf("usage reported (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChatDetails(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	p.Script(providertest.Chat(providertest.Usage{Prompt: 9, Cached: 4, Completion: 3, Reasoning: 2}))
	_, got, err := post(t.Context(), p.URL(), `{"model":"a\"b"}`)
	if err != nil {
		t.Fatal(err)
	}
	const want = `"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,` +
		`"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}`
	if !strings.HasSuffix(got, want) || !strings.Contains(got, `"model":"a\"b"`) {
		t.Errorf("answer is %s", got)
	}
}

func TestProviderLogsRawBytes(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	conn := dial(t, p)
	requests := []string{
		"POST /v1/chat/completions?a=1 HTTP/1.1\r\nHost: up\r\nX-oDD:  case \r\nContent-Length: 2\r\n\r\n{}",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: up\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
	}
	// Both at once: the second is in the buffer while the first is answered.
	send(t, conn, requests[0]+requests[1])
	in := bufio.NewReader(conn)
	for range requests {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
	}
	hits := p.Wait(2, 5*time.Second)
	for i, hit := range hits {
		if diff := cmp.Diff(requests[i], string(hit.Raw)); diff != "" {
			t.Errorf("raw bytes of hit %d (-want +got):\n%s", i, diff)
		}
		if string(hit.Body) != "{}" || hit.Conn != 1 || hit.Host != "up" || !hit.Done || hit.Gone {
			t.Errorf("hit %d is %+v", i, hit)
		}
	}
	if hits[0].Path != "/v1/chat/completions?a=1" || hits[0].Header.Get("X-Odd") != "case" {
		t.Errorf("path %q, header %v", hits[0].Path, hits[0].Header)
	}
}

func TestProviderContinues(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	conn := dial(t, p)
	send(t, conn, "POST / HTTP/1.1\r\nHost: up\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" || err != nil {
		t.Fatalf("answer is %q, error %v", line, err)
	}
	send(t, conn, "{}")
	if hits := p.Wait(1, 5*time.Second); len(hits) != 1 || string(hits[0].Body) != "{}" {
		t.Errorf("hits are %+v", hits)
	}
}

func TestProviderWritesAsScripted(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		reply providertest.Reply
		want  string
	}{
		{
			name:  "status, headers in order, length",
			reply: providertest.Reply{Status: 429, Header: http.Header{"Retry-After": {"7"}, "A": {"1", "2"}}, Body: []byte("no")},
			want:  "HTTP/1.1 429 Too Many Requests\r\nA: 1\r\nA: 2\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno",
		},
		{
			name:  "events",
			reply: providertest.SSE("data: 1", "event: x\ndata: 2"),
			want:  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n12\r\nevent: x\ndata: 2\n\n\r\n0\r\n\r\n",
		},
		{
			name: "events with a length",
			reply: func() providertest.Reply {
				r := providertest.SSE("data: 1")
				r.ContentLength = true
				return r
			}(),
			want: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: 1\n\n",
		},
		{
			name:  "split",
			reply: providertest.JSON(200, "abc").Resplit(2),
			want:  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
		},
		{
			name:  "a length that lies",
			reply: providertest.Reply{Header: http.Header{"Content-Length": {"9"}}, Body: []byte("abc"), Break: providertest.CloseAfterBody},
			want:  "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
		},
		{
			name:  "no content",
			reply: providertest.Reply{Status: 204},
			want:  "HTTP/1.1 204 No Content\r\n\r\n",
		},
		{
			name: "closed in mid-stream",
			reply: func() providertest.Reply {
				r := providertest.SSE("data: 1")
				r.Break = providertest.CloseAfterBody
				return r
			}(),
			want: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := providertest.New(t)
			p.Answer(test.reply)
			conn := dial(t, p)
			send(t, conn, "GET / HTTP/1.1\r\nHost: up\r\nConnection: close\r\n\r\n")
			got, err := io.ReadAll(conn)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("bytes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProviderHead(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	p.Answer(providertest.JSON(200, "abc"))
	answer, err := http.Head(p.URL())
	if err != nil || answer.ContentLength != 3 {
		t.Errorf("answer is %+v, error %v; want a length of 3 and no body", answer, err)
	}
	answer.Body.Close()
}

func TestProviderResets(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		at   providertest.Break
		want string
	}{
		{name: "before headers", at: providertest.ResetBeforeHeaders},
		{name: "after headers", at: providertest.ResetAfterHeaders},
		{name: "mid-stream", at: providertest.ResetAfterBody, want: "data: 1\n\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := providertest.New(t)
			reply := providertest.SSE("data: 1")
			reply.Break = test.at
			p.Answer(reply)
			conn := dial(t, p)
			send(t, conn, "GET / HTTP/1.1\r\nHost: up\r\n\r\n")
			got, err := io.ReadAll(conn)
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("error is %v, want a reset; %q was read", err, got)
			}
			// A reset may overtake what was sent before it; what was not sent never comes.
			if test.at == providertest.ResetBeforeHeaders && len(got) > 0 {
				t.Errorf("%q came before the reset", got)
			}
			if hits := p.Wait(1, 5*time.Second); len(hits) != 1 || !hits[0].Done {
				t.Errorf("hits are %+v", hits)
			}
		})
	}
}

func TestProviderSeesItsClientGo(t *testing.T) {
	t.Parallel()
	slow := providertest.SSE("data: 1", "data: 2").Paced(time.Hour)
	hanging := providertest.SSE("data: 1")
	hanging.Break = providertest.HangAfterBody
	tests := []struct {
		name  string
		reply providertest.Reply
	}{
		{name: "hang", reply: providertest.Reply{Break: providertest.HangBeforeHeaders}},
		{name: "delay", reply: providertest.Reply{Delay: time.Hour}},
		{name: "between chunks", reply: slow},
		{name: "after the body", reply: hanging},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := providertest.New(t)
			p.Answer(test.reply)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, _, err := post(ctx, p.URL(), "{}"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error is %v, want a timeout", err)
			}
			hits := p.Wait(1, 5*time.Second)
			if len(hits) != 1 || !hits[0].Gone || hits[0].Done {
				t.Fatalf("hits are %+v, want one whose client went", hits)
			}
			if got := p.Reported(); got != (providertest.Usage{}) {
				t.Errorf("reported is %+v", got)
			}
		})
	}
}

func TestProviderEndsWithItsTest(t *testing.T) {
	t.Parallel()
	t.Run("inner", func(t *testing.T) {
		p := providertest.New(t)
		p.Answer(providertest.Reply{Break: providertest.HangBeforeHeaders})
		conn := dial(t, p)
		send(t, conn, "GET / HTTP/1.1\r\nHost: up\r\n\r\n")
		for p.InFlight() == 0 {
			time.Sleep(time.Millisecond)
		}
	})
}

func TestProviderQueueAndPeak(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	p.Queue(providertest.JSON(500, "a"), providertest.JSON(503, "b"))
	for _, want := range []int{500, 503, 200} {
		answer, _, err := post(t.Context(), p.URL(), chatBody)
		if err != nil || answer.StatusCode != want {
			t.Errorf("answer %+v, error %v; want %d", answer, err, want)
		}
	}
	if got := p.Peak(); got != 1 {
		t.Errorf("peak of requests one after the other is %d", got)
	}
	p.Reset()
	const clients = 8
	arrived := make(chan struct{}, clients)
	release := make(chan struct{})
	p.Script(func(hit providertest.Hit) providertest.Reply {
		arrived <- struct{}{}
		<-release
		return providertest.JSON(200, "{}")
	})
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			if _, _, err := post(t.Context(), p.URL(), chatBody); err != nil {
				t.Error(err)
			}
		})
	}
	for range clients {
		<-arrived
	}
	if got := p.InFlight(); got != clients {
		t.Errorf("%d in flight, want %d", got, clients)
	}
	close(release)
	running.Wait()
	if hits := p.Wait(clients, 5*time.Second); len(hits) != clients || p.Peak() != clients || p.InFlight() != 0 {
		t.Errorf("%d hits, peak %d, %d in flight; want %d, %d, 0", len(hits), p.Peak(), p.InFlight(), clients, clients)
	}
}

func TestProviderPaces(t *testing.T) {
	t.Parallel()
	p := providertest.New(t)
	reply := providertest.SSE("data: 1", "data: 2").Paced(30 * time.Millisecond)
	reply.Delay = 40 * time.Millisecond
	p.Answer(reply)
	begun := time.Now()
	_, got, err := post(t.Context(), p.URL(), "{}")
	if took := time.Since(begun); err != nil || took < 100*time.Millisecond || got != "data: 1\n\ndata: 2\n\n" {
		t.Errorf("%q after %v, error %v; want two events after at least 100ms", got, took, err)
	}
	if hit := p.Wait(1, 5*time.Second)[0]; hit.Ended.Sub(hit.At) < 100*time.Millisecond {
		t.Errorf("the hit lasted %v", hit.Ended.Sub(hit.At))
	}
}

func dial(t *testing.T, p *providertest.Provider) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}
