package pipeline

import (
	"cmp"
	"slices"
	"time"
)

// Filter says which trips are looked at. The zero value looks at all.
type Filter struct {
	Kind   Kind
	Owner  string // a component that has a part in it
	Caller string // a request that has
	Slow   time.Duration
}

// Apply returns the trips that pass.
func (f Filter) Apply(trips []Trip) []Trip {
	list := make([]Trip, 0, len(trips))
	for i := range trips {
		if f.passes(&trips[i]) {
			list = append(list, trips[i])
		}
	}
	return list
}

func (f Filter) passes(t *Trip) bool {
	return (f.Kind == "" || t.Kind == f.Kind) &&
		(f.Caller == "" || slices.Contains(t.Callers, f.Caller)) &&
		(f.Owner == "" || slices.ContainsFunc(t.Owners, func(p Portion) bool { return p.Owner == f.Owner })) &&
		t.Duration() >= f.Slow
}

// Summary is what trips of one kind came to for one component. A trip that several components share counts whole, with
// its whole duration, for each of them; commands and bytes are each one's own.
type Summary struct {
	Owner    string `json:"owner"`
	Kind     Kind   `json:"kind"`
	Trips    int    `json:"trips"`
	Commands int    `json:"commands"`
	Errors   int    `json:"errors"` // of commands
	Sent     int64  `json:"bytes_sent"`
	Received int64  `json:"bytes_received"`
	Total    int64  `json:"total_ns"` // durations are in nanoseconds
	P50      int64  `json:"p50_ns"`
	P95      int64  `json:"p95_ns"`
	Max      int64  `json:"max_ns"`
}

// Summarize sums the trips up by component and kind, what took longest in total first. Percentiles are the durations of
// real trips, by nearest rank.
func Summarize(trips []Trip) []Summary {
	type row struct {
		owner string
		kind  Kind
	}
	rows := map[row]*Summary{}
	took := map[row][]int64{}
	for i := range trips {
		t := &trips[i]
		for _, p := range t.Owners {
			at := row{p.Owner, t.Kind}
			s := rows[at]
			if s == nil {
				s = &Summary{Owner: p.Owner, Kind: t.Kind}
				rows[at] = s
			}
			s.Trips++
			s.Commands += p.Commands
			s.Errors += p.Errors
			s.Sent += p.Sent
			s.Received += p.Received
			s.Total += t.Nanos
			took[at] = append(took[at], t.Nanos)
		}
	}
	list := make([]Summary, 0, len(rows))
	for at, s := range rows {
		slices.Sort(took[at])
		s.P50, s.P95, s.Max = rank(took[at], 50), rank(took[at], 95), rank(took[at], 100)
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Summary) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Kind, b.Kind))
	})
	return list
}

// rank is the percentile of sorted durations.
func rank(sorted []int64, percent int) int64 {
	return sorted[(len(sorted)*percent+99)/100-1]
}
