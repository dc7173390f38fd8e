package main

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollgate-proxy/tollgate/pipeline"
)

// tripsView is what /debug/trips tells: who waits on Redis, and why.
type tripsView struct {
	Summary []pipeline.Summary `json:"summary"` // of the trips below
	Trips   []pipeline.Trip    `json:"trips"`   // the newest first
}

// debugTrips serves the newest trips and their summary, as a page to a browser and else as JSON.
func (a *app) debugTrips(w http.ResponseWriter, r *http.Request) {
	f, err := tripsFilter(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	view := viewTrips(a.tracer.Trips(), f)
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("content-type", "text/html; charset=utf-8")
		err = tripsPage.Execute(w, view)
	} else {
		w.Header().Set("content-type", "application/json")
		err = json.MarshalWrite(w, view, jsontext.WithIndent("  "))
	}
	if err != nil {
		a.log.Error("trips cannot be written", "error", err)
	}
}

// viewTrips looks at the trips that pass. A summary by owner is that owner's alone.
func viewTrips(trips []pipeline.Trip, f pipeline.Filter) tripsView {
	v := tripsView{Trips: f.Apply(trips)}
	v.Summary = pipeline.Summarize(v.Trips)
	if f.Owner != "" {
		v.Summary = slices.DeleteFunc(v.Summary, func(s pipeline.Summary) bool { return s.Owner != f.Owner })
	}
	return v
}

// tripsFilter reads ?kind=, ?owner=, ?caller= and ?slow=.
func tripsFilter(q url.Values) (pipeline.Filter, error) {
	f := pipeline.Filter{Kind: pipeline.Kind(q.Get("kind")), Owner: q.Get("owner"), Caller: q.Get("caller")}
	for name := range q {
		switch name {
		case "kind", "owner", "caller", "slow":
		default:
			return f, fmt.Errorf("?%s= is no filter: there are kind, owner, caller and slow", name)
		}
	}
	if f.Kind != "" && !slices.Contains(pipeline.Kinds, f.Kind) {
		return f, fmt.Errorf("?kind= is one of %v", pipeline.Kinds)
	}
	if slow := q.Get("slow"); slow != "" {
		var err error
		if f.Slow, err = time.ParseDuration(slow); err != nil {
			return f, fmt.Errorf("?slow= is a duration such as 10ms")
		}
	}
	return f, nil
}

//go:embed trips.html
var tripsHTML string

var tripsPage = template.Must(template.New("trips").Funcs(template.FuncMap{
	"ns": func(n int64) time.Duration { return time.Duration(n) },
}).Parse(tripsHTML))
