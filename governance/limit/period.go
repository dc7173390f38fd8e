package limit

import (
	"strconv"
	"time"

	"github.com/tollgate-proxy/tollgate/governance/config"
)

// span is a budget's period and the one after it, as the script takes them: Lua knows no time zones, so the caller
// names both and the script takes the one that its clock is in.
type span struct {
	start, end int64 // unix ms; end is exclusive
	id         string
	args       [3]any
}

// spanAt computes the period that t falls into. A period's id is its start in unix ms.
func spanAt(per config.Period, loc *time.Location, t time.Time) *span {
	start, end := bounds(per, loc, t)
	_, after := bounds(per, loc, time.UnixMilli(end))
	if per == config.Lifetime {
		after = end
	}
	return &span{start: start, end: end, id: strconv.FormatInt(start, 10), args: [3]any{start, end, after}}
}

// forever ends a lifetime budget's only period: the largest integer Lua holds exactly.
const forever = 1<<53 - 1

// bounds are the first instant of t's period and of the next, in unix ms.
func bounds(per config.Period, loc *time.Location, t time.Time) (start, end int64) {
	t = t.In(loc)
	y, m, d := t.Date()
	var from, to time.Time
	switch per {
	case config.Minute:
		from = t.Truncate(time.Minute)
		to = from.Add(time.Minute)
	case config.Hour:
		// By arithmetic: in a zone an hour can come twice, and each is a period of its own. Zones that are off by part
		// of an hour begin theirs where their clock shows minute 0.
		_, offset := t.Zone()
		shift := time.Duration(offset) * time.Second % time.Hour
		from = t.Add(shift).Truncate(time.Hour).Add(-shift)
		to = from.Add(time.Hour)
	case config.Day:
		from, to = time.Date(y, m, d, 0, 0, 0, 0, loc), time.Date(y, m, d+1, 0, 0, 0, 0, loc)
	case config.Week:
		d -= (int(t.Weekday()) + 6) % 7 // back to Monday
		from, to = time.Date(y, m, d, 0, 0, 0, 0, loc), time.Date(y, m, d+7, 0, 0, 0, 0, loc)
	case config.Month:
		from, to = time.Date(y, m, 1, 0, 0, 0, 0, loc), time.Date(y, m+1, 1, 0, 0, 0, 0, loc)
	case config.Days30:
		const run = 30 * 24 * 60 * 60 * 1000
		ms := t.UnixMilli()
		return ms - ms%run, ms - ms%run + run
	case config.Lifetime:
		return 0, forever
	}
	return from.UnixMilli(), to.UnixMilli()
}

// periodRank orders the periods by length: of several budgets that refuse, the shorter one is named.
func periodRank(per config.Period) int {
	for i, p := range []config.Period{
		config.Minute, config.Hour, config.Day, config.Week, config.Month, config.Days30, config.Lifetime,
	} {
		if p == per {
			return i
		}
	}
	return 0
}
