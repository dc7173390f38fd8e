-- Admission: all counters of one request and the choice of its deployment, all or nothing.
--
-- KEYS  for each scope, then for each candidate deployment, those of these that its "has" names, in this order:
--         b hash of budgets, r hash of the rate window, l sorted set of leases
-- ARGV  1 now in ms, or '' for the server's clock     2 request id             3 lease in ms
--       4 fixed cost, nano-dollars                    5 nano-dollars per million output tokens
--       6 wanted output tokens a choice               7 least output tokens a choice   8 choices
--       9 input tokens                               10 scopes                        11 candidates
--      12 note kept in the first lease               13 what a broken key means: budgets, 'deny' or 'allow'
--      14 the same for rates                         15 how a candidate is chosen: 'first' or 'usage'
--      then for each scope and candidate:
--        has ('b', 'r', 'l' in any mix), order (candidates), rpm, tpm, tpm counts (t u i o), parallel, budgets n,
--        each limit being '' (none) or '<limit>:<b block | a audit>'
--        then n times: field, unit (u t r), amount:mode ('' mode s: never refuses), period, start, end, next period, next end
-- Reply {'ok', output tokens a choice, now, reserved nano-dollars, candidate (0: none asked for), bucket,
--        lease members, use of each scope, audit failures, expired leases, {scope, b r or l} of broken keys}
--       {'no', now, failures}   {'busy', now, wait in ms, failures of candidates}   {'clock', now}
--   use      {requests in the window, tokens in the window, live leases, then per budget: spent, reserved, period, end}
--   failure  {scope from 1, kind (b budget, p parallel, r rpm, t tpm, x broken), budget from 1, used, reserved, limit, reset or wait in ms}
--   member   '<id>|<note>|<field>:<period>:<amount>|...' or '' where the scope has no lease
--
-- Redis does not roll back, so everything is read and compared before anything is written. Assignments stand one a
-- line and into new locals: gopher-lua computes multiple assignments to existing locals wrongly.
local BUCKET = 5000 -- ms; a window is twelve of them, and what of the thirteenth is still inside
local DAY35 = 3024000000

local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
local id = ARGV[2]
local lease = tonumber(ARGV[3])
local fixed = tonumber(ARGV[4])
local unit = tonumber(ARGV[5])
local want = tonumber(ARGV[6])
local least = tonumber(ARGV[7])
local choices = tonumber(ARGV[8])
local input = tonumber(ARGV[9])
local nscopes = tonumber(ARGV[10])
local ncands = tonumber(ARGV[11])
local note = ARGV[12]
local bucket = math.floor(now / BUCKET)
local part = (now % BUCKET) / BUCKET -- of the newest bucket that is over, and of the oldest that is outside

local function int(n) return string.format('%.0f', n) end
local function cost(out) return fixed + math.ceil(out * choices * unit / 1000000) end
local function counted(how, out)
  if how == 'i' then return input end
  if how == 'o' then return out * choices end
  return input + out * choices
end
local function amount_of(u, out)
  if u == 'u' then return cost(out) end
  if u == 't' then return input + out * choices end
  return 1
end
local function is_error(v) return type(v) == 'table' and v.err ~= nil end
local function limit_of(s)
  local l, mode = string.match(s, '^(%d+):(%a)$')
  return tonumber(l), mode
end

-- window reads a rate window: kept buckets in order, requests and tokens in the window.
local function window(text)
  local w = { list = {}, requests = 0, tokens = 0 }
  if not text then return w end
  for raw, b, c, k in string.gmatch(text, '((%d+):(%d+):(%d+))') do
    local e = { tonumber(b), tonumber(c), tonumber(k), raw }
    if e[1] >= bucket - 12 then
      local weight = 1
      if e[1] == bucket - 12 then weight = 1 - part end
      w.list[#w.list + 1] = e
      w.requests = w.requests + e[2] * weight
      w.tokens = w.tokens + e[3] * weight
    end
  end
  return w
end

-- wait says in how many ms `need` more of column i fit below the limit; -1: never.
local function wait(w, i, need, limit)
  if need > limit then return -1 end
  for k = 0, 12 do
    local oldest = bucket + k - 12
    local newer = 0
    local aging = 0
    for _, e in ipairs(w.list) do
      if e[1] > oldest then newer = newer + e[i] elseif e[1] == oldest then aging = e[i] end
    end
    if newer + need <= limit then
      local f = 0
      if aging > 0 then f = math.max(0, 1 - (limit - need - newer) / aging) end
      if k > 0 or f > part then return math.ceil((bucket + k + f) * BUCKET - now) end
      return 0
    end
  end
  return 13 * BUCKET
end

local key = 0
local arg = 15
local function take_key()
  key = key + 1
  return KEYS[key]
end
local function take()
  arg = arg + 1
  return ARGV[arg]
end

local broken = {}
local clock = false

-- expire notes the leases that have run out: what each held goes back to the period it was taken from.
local function expire(s, dead)
  for _, member in ipairs(dead) do
    for f, p, a in string.gmatch(member, '|(%w+):(%d+):(%d+)') do
      for _, b in ipairs(s.budgets) do
        if b.field == f then
          if b.stored == p then b.stored_r = b.stored_r - tonumber(a) end
          if b.stored_before == p then b.stored_R = b.stored_R - tonumber(a) end
        end
      end
    end
  end
  s.dead = dead
end

-- read takes a scope's arguments and state; nothing is written.
local function read(index)
  local has = take()
  local s = { index = index, budgets = {}, dead = {}, order = tonumber(take()) or 0 }
  local rpm, rpm_mode = limit_of(take())
  local tpm, tpm_mode = limit_of(take())
  s.counts = take()
  local parallel, parallel_mode = limit_of(take())
  s.rpm = rpm
  s.rpm_mode = rpm_mode
  s.tpm = tpm
  s.tpm_mode = tpm_mode
  s.parallel = parallel
  s.parallel_mode = parallel_mode
  local fields = { 'since' }
  for i = 1, tonumber(take()) do
    local b = { field = take(), unit = take() }
    local limit, mode = string.match(take(), '^(%d+):(%a)$')
    b.limit = tonumber(limit)
    b.mode = mode
    b.period = take()
    local start = tonumber(take())
    b.ends = tonumber(take())
    local next_period = take()
    local next_end = tonumber(take())
    if now >= b.ends then
      start = b.ends
      b.period = next_period
      b.ends = next_end
    end
    if now < start or now >= b.ends then clock = true end
    b.keep = b.ends - start
    s.budgets[i] = b
    local f = b.field .. '.'
    local n = #fields
    fields[n + 1] = f .. 'p'
    fields[n + 2] = f .. 's'
    fields[n + 3] = f .. 'r'
    fields[n + 4] = f .. 'P'
    fields[n + 5] = f .. 'S'
    fields[n + 6] = f .. 'R'
    b.r_field = fields[n + 3]
  end
  if string.find(has, 'b', 1, true) then
    s.b = take_key()
    local v = redis.pcall('HMGET', s.b, unpack(fields))
    if is_error(v) then
      broken[#broken + 1] = { index, 'b' }
      s.b = nil
      s.budgets = {}
    else
      s.since = v[1]
      for i, b in ipairs(s.budgets) do
        local at = (i - 1) * 6 + 1
        b.stored = v[at + 1]
        b.stored_s = tonumber(v[at + 2]) or 0
        b.stored_r = tonumber(v[at + 3]) or 0
        b.stored_before = v[at + 4]
        b.stored_S = tonumber(v[at + 5]) or 0
        b.stored_R = tonumber(v[at + 6]) or 0
      end
    end
  end
  if string.find(has, 'r', 1, true) then
    s.r = take_key()
    local v = redis.pcall('HGET', s.r, 'w')
    if is_error(v) then
      broken[#broken + 1] = { index, 'r' }
      s.r = nil
      s.rpm = nil
      s.tpm = nil
    else
      s.w = window(v)
    end
  end
  s.live = 0
  if string.find(has, 'l', 1, true) then
    s.l = take_key()
    local v = redis.pcall('ZRANGEBYSCORE', s.l, '-inf', int(now), 'LIMIT', 0, 64)
    if is_error(v) then
      broken[#broken + 1] = { index, 'l', s }
      s.l = nil
      s.parallel = nil
    else
      expire(s, v)
      if s.parallel then s.live = redis.call('ZCOUNT', s.l, '(' .. int(now), '+inf') end
    end
  end
  for _, b in ipairs(s.budgets) do
    b.rolled = b.stored ~= b.period
    if b.rolled then
      b.s = 0
      b.r = 0
    else
      b.s = b.stored_s
      b.r = b.stored_r
    end
  end
  return s
end

-- compare puts what a scope refuses into `no` and what it would have refused into `would`; it returns the most output
-- tokens a choice, up to out, that the scope's blocking limits hold.
local function compare(s, no, would, out)
  local function fail(mode, f)
    if mode == 'a' then would[#would + 1] = f elseif mode ~= 's' then no[#no + 1] = f end
  end
  for i, b in ipairs(s.budgets) do
    local left = b.limit - b.s - b.r
    local need = amount_of(b.unit, least)
    local free = b.unit == 'u' and fixed == 0 and unit == 0
    if not free and (b.s >= b.limit or left < need) then
      fail(b.mode, { s.index, 'b', i, int(b.s), int(b.r), int(b.limit), int(b.ends) })
    elseif b.mode == 'b' and not free then
      local fits = out
      if b.unit == 'u' and unit > 0 then
        fits = math.floor((left - fixed) * 1000000 / (unit * choices))
        if cost(fits) > left then fits = fits - 1 end
      elseif b.unit == 't' then
        fits = math.floor((left - input) / choices)
      end
      out = math.max(least, math.min(out, fits))
    end
  end
  if s.parallel and s.live + 1 > s.parallel then
    fail(s.parallel_mode, { s.index, 'p', 0, int(s.live), '0', int(s.parallel), '1000' })
  end
  if s.rpm and s.w.requests + 1 > s.rpm + 0.000001 then
    fail(s.rpm_mode, { s.index, 'r', 0, int(math.ceil(s.w.requests)), '0', int(s.rpm), int(wait(s.w, 2, 1, s.rpm)) })
  end
  if s.tpm then
    local need = counted(s.counts, least)
    if s.w.tokens + need > s.tpm + 0.000001 then
      fail(s.tpm_mode, { s.index, 't', 0, int(math.ceil(s.w.tokens)), '0', int(s.tpm), int(wait(s.w, 3, need, s.tpm)) })
    elseif s.tpm_mode == 'b' and s.counts ~= 'i' then
      local room = s.tpm - s.w.tokens
      if s.counts ~= 'o' then room = room - input end
      out = math.max(least, math.min(out, math.floor(room / choices + 0.000001)))
    end
  end
  return out
end

-- drop gives expired leases back. It works on what is stored, not on what a rotation would make of it, so that it may
-- also stand alone after a refusal.
local function drop(s, gone)
  if #s.dead == 0 then return end
  redis.call('ZREM', s.l, unpack(s.dead))
  for _, member in ipairs(s.dead) do gone[#gone + 1] = member end
  for _, b in ipairs(s.budgets) do
    if b.stored then redis.call('HSET', s.b, b.field .. '.r', int(b.stored_r)) end
    if b.stored_before then redis.call('HSET', s.b, b.field .. '.R', int(b.stored_R)) end
  end
end

-- add counts the request in a scope and returns its lease member, or ''.
local function add(s, out, reserved, tag)
  local member = id .. '|' .. tag
  if s.b then
    local set = {}
    local ttl = 0
    local fresh = not s.since
    if fresh then
      set[1] = 'since'
      set[2] = int(now)
    end
    for _, b in ipairs(s.budgets) do
      local a = amount_of(b.unit, out)
      if b.unit == 'u' then a = reserved end
      -- Only a lease gives a reservation back: where there is none, nothing is reserved.
      if s.l then b.r = b.r + a end
      member = member .. '|' .. b.field .. ':' .. b.period .. ':' .. int(a)
      if b.rolled then
        fresh = true
        if b.stored then
          for f, v in pairs({ P = b.stored, S = int(b.stored_s), R = int(b.stored_r) }) do
            set[#set + 1] = b.field .. '.' .. f
            set[#set + 1] = v
          end
        end
        set[#set + 1] = b.field .. '.p'
        set[#set + 1] = b.period
        set[#set + 1] = b.field .. '.s'
        set[#set + 1] = '0'
      end
      set[#set + 1] = b.r_field
      set[#set + 1] = int(b.r)
      if b.period == '0' then ttl = nil end
      if ttl then ttl = math.max(ttl, b.ends - now + b.keep) end
    end
    redis.call('HSET', s.b, unpack(set))
    if fresh then
      if ttl then redis.call('PEXPIRE', s.b, int(ttl + DAY35)) else redis.call('PERSIST', s.b) end
    end
  end
  if s.r then
    local tokens = counted(s.counts, out)
    local newest = s.w.list[#s.w.list]
    s.w.requests = s.w.requests + 1
    s.w.tokens = s.w.tokens + tokens
    if newest and newest[1] >= bucket then
      newest[2] = newest[2] + 1
      newest[3] = newest[3] + tokens
    else
      s.w.list[#s.w.list + 1] = { bucket, 1, tokens }
    end
    local parts = {}
    local last = #s.w.list
    for i = 1, last - 1 do parts[i] = s.w.list[i][4] end
    local e = s.w.list[last]
    parts[last] = int(e[1]) .. ':' .. int(e[2]) .. ':' .. int(e[3])
    redis.call('HSET', s.r, 'w', table.concat(parts, ' '))
    if not newest or newest[1] < bucket then redis.call('PEXPIRE', s.r, 120000) end
  end
  if not s.l then return '' end
  s.live = s.live + 1
  redis.call('ZADD', s.l, int(now + lease), member)
  -- A lease that nobody settles must outlast its time: only what is found run out can be given back and recorded. The set
  -- is gone with its last member, so it stays as long as the hash whose reservation it holds at the least. A command costs
  -- as much as much of the script, so this one is spared where the set is known to have its TTL: all but once an hour.
  local hourly = bucket % 720 == 0
  if string.find(member, '|%w+:0:%d') then
    if hourly then redis.call('PERSIST', s.l) end
  elseif hourly or not s.parallel or s.live + #s.dead == 1 then
    redis.call('PEXPIRE', s.l, int(DAY35))
  end
  return member
end

local function use(s)
  local requests = 0
  local tokens = 0
  if s.w then
    requests = math.ceil(s.w.requests - 0.000001)
    tokens = math.ceil(s.w.tokens - 0.000001)
  end
  local u = { requests, tokens, s.live }
  local n = 3
  for _, b in ipairs(s.budgets) do
    u[n + 1] = b.s
    u[n + 2] = b.r
    u[n + 3] = b.period
    u[n + 4] = b.ends
    n = n + 4
  end
  return u
end

local scopes = {}
for i = 1, nscopes do scopes[i] = read(i) end
local cands = {}
for i = 1, ncands do cands[i] = read(nscopes + i) end
if clock then return { 'clock', int(now) } end

local no = {}
local would = {}
local out = want
for _, x in ipairs(broken) do
  local policy = ARGV[14]
  if x[2] == 'b' then policy = ARGV[13] end
  -- The leases hold what the budgets reserve: both kinds have a say.
  if x[2] == 'l' and #x[3].budgets > 0 and ARGV[13] == 'deny' then policy = 'deny' end
  if policy == 'deny' then no[#no + 1] = { x[1], 'x', 0, '0', '0', '0', '0' } end
end
for _, s in ipairs(scopes) do out = compare(s, no, would, out) end

-- The deployment is chosen last. Of those with the lowest order that have room: the first, or the one that has used the
-- smallest share of its limits (without limits: the one with the fewest tokens in the window).
local chosen = 0
local busy = {}
local soonest = -1
if #no == 0 and ncands > 0 then
  local best
  for i, c in ipairs(cands) do
    local full = {}
    local audited = {}
    local fits = compare(c, full, audited, out)
    if #full > 0 then
      local longest = 0
      for _, f in ipairs(full) do
        busy[#busy + 1] = f
        local ms = tonumber(f[7])
        if f[2] == 'b' then ms = ms - now end
        if ms < 0 then longest = -1 elseif longest >= 0 then longest = math.max(longest, ms) end
      end
      if longest >= 0 and (soonest < 0 or longest < soonest) then soonest = longest end
    elseif chosen == 0 or c.order <= cands[chosen].order then
      local share = 0
      if c.rpm and c.rpm > 0 then share = c.w.requests / c.rpm end
      if c.tpm and c.tpm > 0 then share = math.max(share, c.w.tokens / c.tpm) end
      local tokens = 0
      if c.w then tokens = c.w.tokens end
      local better = chosen == 0 or c.order < cands[chosen].order
      if not better and ARGV[15] == 'usage' then
        better = share < best[1] or (share == best[1] and tokens < best[2])
      end
      if better then
        chosen = i
        best = { share, tokens, fits, audited }
      end
    end
  end
  if chosen > 0 then
    out = best[3]
    for _, f in ipairs(best[4]) do would[#would + 1] = f end
  end
end

local gone = {}
if #no > 0 or (ncands > 0 and chosen == 0) then
  for _, s in ipairs(scopes) do drop(s, gone) end
  for _, c in ipairs(cands) do drop(c, gone) end
  if #no > 0 then return { 'no', int(now), no, gone } end
  return { 'busy', int(now), int(soonest), busy, gone }
end

local reserved = cost(out)
local members = {}
local uses = {}
local tag = note
for i, s in ipairs(scopes) do
  drop(s, gone)
  members[i] = add(s, out, reserved, tag)
  if members[i] ~= '' then tag = '' end
  uses[i] = use(s)
end
for i, c in ipairs(cands) do
  drop(c, gone)
  if i == chosen then
    members[nscopes + 1] = add(c, out, reserved, tag)
    uses[nscopes + 1] = use(c)
  end
end
local passed = {}
for i, x in ipairs(broken) do passed[i] = { x[1], x[2] } end
return { 'ok', int(out), int(now), int(reserved), chosen, int(bucket), members, uses, would, gone, passed }
