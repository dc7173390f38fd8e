package pipeline

import "strings"

// NewOnce makes a script for [Writes.Once]: one that is applied exactly once, however often it is sent, and never before
// what was declared before it for the same KEYS[1].
//
// KEYS[1] holds the number of the last write applied, under a name of its own for each writer; ARGV[1] is the number of
// this write and ARGV[2] that of the one before it, when both are sent together. The source does not see to any of that:
// its own keys begin with KEYS[2], its own arguments with ARGV[3], and it runs only when it is to be applied. The number
// is kept for 35 days after the last write.
//
// A script that fails half-way is not undone, as always in Redis, and not repeated.
func NewOnce(name, source string) *Script {
	first := ""
	if strings.HasPrefix(source, "#!") {
		first, source, _ = strings.Cut(source, "\n")
		first += "\n"
	}
	s := NewScript(name, first+onceSource+source)
	s.once = true
	return s
}

// onceSource stands before the source of a script that is applied once. A key of the wrong type is replaced. It has no
// multiple assignment: the in-process store's Lua computes those wrongly.
const onceSource = `do
  local last = redis.pcall('GET', KEYS[1])
  if type(last) == 'table' then last = '0' end
  last = tonumber(last) or 0
  if tonumber(ARGV[1]) <= last then return 0 end
  if ARGV[2] ~= '' and last < tonumber(ARGV[2]) then return redis.error_reply('GAP the write before this one has not run') end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', 3024000000)
end
`
