package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tollgate-proxy/tollgate/governance/config"
	"github.com/tollgate-proxy/tollgate/pipeline"
)

// What /debug/trips tells, through its filters: keys and errors, and never a value.
func TestDebugTripsFilters(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, config.Default())
	batch := a.backend.Batch("req-<1>")
	pipeline.Declare(batch, "cache", pipeline.Raw, "SET", "<b>key</b>", "the-value")
	_, _ = pipeline.Declare(batch, "cache", pipeline.Raw, "HGETALL", "<b>key</b>").Get(t.Context())
	_, _ = pipeline.Declare(a.backend.Batch("req-2"), "limit", pipeline.Raw, "GET", "<b>key</b>").Get(t.Context())
	address := "http://" + a.bound["admin"] + "/debug/trips"

	code, body := get(t, address+"?caller="+url.QueryEscape("req-<1>"))
	var view tripsView
	if err := json.Unmarshal([]byte(body), &view); code != 200 || err != nil || strings.Contains(body, "the-value") {
		t.Fatalf("%d, %v:\n%s", code, err, body)
	}
	took := cmpopts.IgnoreFields(pipeline.Summary{}, "Total", "P50", "P95", "Max")
	portion := pipeline.Portion{
		Owner: "cache", Commands: 2, Errors: 1,
		Sent:     int64(len("*3\r\n$3\r\nSET\r\n$10\r\n<b>key</b>\r\n$9\r\nthe-value\r\n*2\r\n$7\r\nHGETALL\r\n$10\r\n<b>key</b>\r\n")),
		Received: int64(len("+OK\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")),
	}
	summary := []pipeline.Summary{{
		Owner: "cache", Kind: pipeline.KindRequest, Trips: 1, Commands: 2, Errors: 1, Sent: portion.Sent, Received: portion.Received,
	}}
	if diff := cmp.Diff(summary, view.Summary, took); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	trips := []pipeline.Trip{{
		Kind: pipeline.KindRequest, Server: a.backend.Nodes()[0].Addr, Callers: []string{"req-<1>"}, Batches: 1, Size: 2,
		Sent: portion.Sent, Received: portion.Received, Owners: []pipeline.Portion{portion},
		Commands: []pipeline.Command{
			{Owner: "cache", Name: "set", Key: "<b>key</b>"},
			{Owner: "cache", Name: "hgetall", Key: "<b>key</b>", Error: "WRONGTYPE Operation against a key holding the wrong kind of value"},
		},
	}}
	if diff := cmp.Diff(trips, view.Trips, cmpopts.IgnoreFields(pipeline.Trip{}, "N", "At", "Nanos", "Queued")); diff != "" {
		t.Errorf("trips (-want +got):\n%s", diff)
	}
	if len(view.Summary) == 1 && len(view.Trips) == 1 {
		if s := view.Summary[0]; s.Total <= 0 || s.Total != view.Trips[0].Nanos || s.P50 != s.Total || s.P95 != s.Total || s.Max != s.Total {
			t.Errorf("durations: %+v", s)
		}
	}

	_, page := get(t, address+"?owner=cache&kind=request", "Accept", "text/html")
	for _, want := range []string{
		"<td>req-&lt;1&gt;", "<b>cache</b> hgetall &lt;b&gt;key&lt;/b&gt; WRONGTYPE", "<tr><td>cache<td>request<td>1<td>2<td>1<td>",
	} {
		if !strings.Contains(strings.ReplaceAll(page, "\n", ""), want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	for _, never := range []string{"<b>key", "req-<", "the-value", "req-2", "<b>limit"} {
		if strings.Contains(page, never) {
			t.Errorf("%s in\n%s", never, page)
		}
	}
	if _, body := get(t, address+"?slow=1h"); !strings.Contains(body, `"trips": []`) || !strings.Contains(body, `"summary": []`) {
		t.Errorf("slow trips:\n%s", body)
	}
	for query, want := range map[string]string{
		"?kind=slow": "?kind= is one of [request again deferred upkeep]\n", "?slow=10": "?slow= is a duration such as 10ms\n",
		"?key=x": "?key= is no filter: there are kind, owner, caller and slow\n",
	} {
		if code, body := get(t, address+query); code != http.StatusBadRequest || body != want {
			t.Errorf("%s: %d %q", query, code, body)
		}
	}
}

// A summary by owner leaves out who shared the trips.
func TestViewTripsOfOneOwner(t *testing.T) {
	t.Parallel()
	shared := pipeline.Trip{Kind: pipeline.KindRequest, Nanos: 5, Owners: []pipeline.Portion{{Owner: "a", Commands: 1}, {Owner: "b", Commands: 2}}}
	got := viewTrips([]pipeline.Trip{shared}, pipeline.Filter{Owner: "b"})
	want := tripsView{Trips: []pipeline.Trip{shared}, Summary: []pipeline.Summary{
		{Owner: "b", Kind: pipeline.KindRequest, Trips: 1, Commands: 2, Total: 5, P50: 5, P95: 5, Max: 5},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
