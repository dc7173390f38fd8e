-- Admission: all counters of one request and the choice of its deployment, all or nothing.
--
-- KEYS  for each scope, then for each candidate deployment, those of these that its "has" names, in this order:
--         b hash of budgets and of the revision, r hash of the rate window, l sorted set of leases
-- ARGV  1 now in ms, or '' for the server's clock     2 lease id               3 lease in ms
--       4 fixed cost, nano-dollars                    5 nano-dollars per million output tokens
--       6 wanted output tokens a choice               7 least output tokens a choice   8 choices
--       9 input tokens                               10 scopes                        11 candidates
--      12 note kept in the first lease               13 what a broken key means: budgets, 'deny' or 'allow'
--      14 the same for rates                         15 how a candidate is chosen: 'first' or 'usage'
--      then for each scope and candidate:
--        has ('b', 'r', 'l' in any mix), order (candidates), revision ('' for none), rpm, tpm, tpm counts (t u i o),
--        parallel, budgets n, each limit being '' for none, the limit, or -1 - limit for one under audit
--        then n times: field, unit (u t r), mode (b blocks, a audit, s soft: never refuses), amount,
--        start of the period, its end, the end of the next; a period's id is its start
-- Reply {'ok', output tokens a choice, now, reserved nano-dollars, candidate (0: none asked for), bucket,
--        lease members, use of each scope, audit failures, expired leases, {scope, b r or l} of broken keys}
--       {'no', now, failures, expired leases}   {'busy', now, wait in ms, failures of candidates, expired leases}
--       {'clock', now}   {'stale', now, scopes whose identity has a newer revision}
--   use      {requests in the window, tokens in the window, live leases, then per budget: spent, reserved, period, end}
--   failure  {scope from 1, kind (b budget, p parallel, r rpm, t tpm, x broken), budget from 1, used, reserved, limit, reset or wait in ms}
--   member   '<id>|<note>|<field>:<period>:<amount>|...' or '' where the scope has no lease
--
-- Redis does not roll back, so everything is read and compared before anything is written. Assignments stand one a
-- line and into new locals: gopher-lua computes multiple assignments to existing locals wrongly. A table is made with
-- all its fields at once: one that grows is made several times over.
local BUCKET = 5000 -- ms; a window is twelve of them, and what of the thirteenth is still inside
local DAY35 = 3024000000 -- ms
local SWEEP = 64 -- expired leases that one admission drops of a scope: many at once would block the server

local call = redis.call
local try = redis.pcall
local find = string.find
local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
local id = ARGV[2]
local fixed = tonumber(ARGV[4])
local unit = tonumber(ARGV[5])
local want = tonumber(ARGV[6])
local least = tonumber(ARGV[7])
local choices = tonumber(ARGV[8])
local input = tonumber(ARGV[9])
local nscopes = tonumber(ARGV[10])
local ncands = tonumber(ARGV[11])
local bucket = math.floor(now / BUCKET)
local part = (now % BUCKET) / BUCKET -- of the newest bucket that is over, and of the oldest that is outside

local function int(n) return string.format('%.0f', n) end
local now_text = int(now)
local lease_end = int(now + tonumber(ARGV[3]))
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
local function limit_of(text)
  local n = tonumber(text)
  if n and n < 0 then return -1 - n, true end
  return n, false
end

-- window reads a rate window: what is in it, where the text's first bucket that is kept and its last one begin, and the
-- last one's counts.
local function window(text)
  local requests = 0
  local tokens = 0
  local from
  local at
  local newest
  local count
  local used
  if text then
    for here, b, c, k in string.gmatch(text, '()(%d+):(%d+):(%d+)') do
      local n = tonumber(b)
      if n >= bucket - 12 then
        local weight = 1
        if n == bucket - 12 then weight = 1 - part end
        if not from then from = here end
        at = here
        newest = n
        count = tonumber(c)
        used = tonumber(k)
        requests = requests + count * weight
        tokens = tokens + used * weight
      end
    end
  end
  return { text = text, requests = requests, tokens = tokens, from = from, at = at, newest = newest, count = count, used = used }
end

-- wait says in how many ms `need` more of column i (1 requests, 2 tokens) fit below the limit; -1: never.
local function wait(w, i, need, limit)
  if need > limit then return -1 end
  local list = {}
  for b, c, k in string.gmatch(w.text or '', '(%d+):(%d+):(%d+)') do
    local n = c
    if i == 2 then n = k end
    list[#list + 1] = { tonumber(b), tonumber(n) }
  end
  for k = 0, 12 do
    local oldest = bucket + k - 12
    local newer = 0
    local aging = 0
    for _, e in ipairs(list) do
      if e[1] > oldest then newer = newer + e[2] elseif e[1] == oldest then aging = e[2] end
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

local broken = {}
local clock = false
local stale = {}

-- expire notes the leases that have run out: what each held goes back to the period it was taken from.
local function expire(s, dead)
  if s.b and #s.budgets > 0 then
    local fields = {}
    for _, b in ipairs(s.budgets) do
      fields[#fields + 1] = b.field .. '.P'
      fields[#fields + 1] = b.field .. '.R'
    end
    local v = call('HMGET', s.b, unpack(fields))
    for i, b in ipairs(s.budgets) do
      b.stored_before = v[2 * i - 1]
      b.stored_R = tonumber(v[2 * i]) or 0
    end
  end
  for _, member in ipairs(dead) do
    for f, p, a in string.gmatch(member, '|(%w+):(%d+):(%d+)') do
      for _, b in ipairs(s.budgets) do
        if b.field == f then
          if b.stored == p then
            b.stored_r = b.stored_r - tonumber(a)
            if not b.rolled then b.r = b.stored_r end
          end
          if b.stored_before == p then b.stored_R = b.stored_R - tonumber(a) end
        end
      end
    end
  end
  s.dead = dead
end

-- read_budgets takes the arguments and the state of n budgets. It returns nothing when the hash cannot be read.
local function read_budgets(index, hash, n, revision)
  local fields = { 'since' }
  local at = 1 -- of what was read
  if revision ~= '' then
    at = 2
    fields[2] = 'rev'
  end
  for i = 0, n - 1 do
    local f = ARGV[arg + 7 * i + 1]
    local k = at + 3 * i
    fields[k + 1] = f .. '.p'
    fields[k + 2] = f .. '.s'
    fields[k + 3] = f .. '.r'
  end
  local v = try('HMGET', hash, unpack(fields))
  if is_error(v) then
    broken[#broken + 1] = { index, 'b' }
    return nil
  end
  local rev = at == 2 and v[2]
  -- As texts: revisions may be larger than what Lua's numbers hold exactly.
  if rev and (#rev > #revision or #rev == #revision and rev > revision) then stale[#stale + 1] = index end
  local budgets = {}
  for i = 1, n do
    local a = arg + 7 * (i - 1)
    local k = at + 3 * (i - 1)
    local period = ARGV[a + 5]
    local start = tonumber(period)
    local ends = tonumber(ARGV[a + 6])
    if now >= ends then
      period = ARGV[a + 6]
      start = ends
      ends = tonumber(ARGV[a + 7])
    end
    if now < start or now >= ends then clock = true end
    local stored_s = tonumber(v[k + 2]) or 0
    local stored_r = tonumber(v[k + 3]) or 0
    local rolled = v[k + 1] ~= period
    local s = stored_s
    local r = stored_r
    if rolled then
      s = 0
      r = 0
    end
    budgets[i] = {
      field = ARGV[a + 1], r_field = fields[k + 3], unit = ARGV[a + 2], mode = ARGV[a + 3], limit = tonumber(ARGV[a + 4]),
      period = period, ends = ends, keep = ends - start, rolled = rolled, s = s, r = r,
      stored = v[k + 1], stored_s = stored_s, stored_r = stored_r, stored_before = false, stored_R = 0,
    }
  end
  return budgets, v[1]
end

-- read takes a scope's arguments and state; nothing is written.
local function read(index)
  local has = ARGV[arg + 1]
  local order = tonumber(ARGV[arg + 2])
  local revision = ARGV[arg + 3]
  local rpm, rpm_audit = limit_of(ARGV[arg + 4])
  local tpm, tpm_audit = limit_of(ARGV[arg + 5])
  local counts = ARGV[arg + 6]
  local parallel, parallel_audit = limit_of(ARGV[arg + 7])
  local n = tonumber(ARGV[arg + 8])
  arg = arg + 8
  local b
  local budgets
  local since
  if find(has, 'b', 1, true) then
    b = take_key()
    local list, made = read_budgets(index, b, n, revision)
    budgets = list
    since = made
    if not list then b = nil end
  end
  arg = arg + 7 * n
  local r
  local w
  if find(has, 'r', 1, true) then
    r = take_key()
    local v = try('HGET', r, 'w')
    if is_error(v) then
      broken[#broken + 1] = { index, 'r' }
      r = nil
      rpm = nil
      tpm = nil
    else
      w = window(v)
    end
  end
  local s = {
    index = index, order = order, b = b, since = since, budgets = budgets or {}, r = r, w = w, l = nil, dead = nil, live = 0,
    rpm = rpm, rpm_audit = rpm_audit, tpm = tpm, tpm_audit = tpm_audit, counts = counts,
    parallel = parallel, parallel_audit = parallel_audit,
  }
  if find(has, 'l', 1, true) then
    local l = take_key()
    local v = try('ZRANGEBYSCORE', l, '-inf', now_text, 'LIMIT', 0, SWEEP)
    if is_error(v) then
      broken[#broken + 1] = { index, 'l', s }
      s.parallel = nil
    else
      s.l = l
      if #v > 0 then expire(s, v) end
      if not parallel then
        s.live = 0
      elseif #v < SWEEP then
        s.live = call('ZCARD', l) - #v
      else
        s.live = call('ZCOUNT', l, '(' .. now_text, '+inf')
      end
    end
  end
  return s
end

local function fail(no, would, audit, f)
  if audit then would[#would + 1] = f else no[#no + 1] = f end
end

-- compare puts what a scope refuses into `no` and what it would have refused into `would`; it returns the most output
-- tokens a choice, up to out, that the scope's blocking limits hold.
local function compare(s, no, would, out)
  for i, b in ipairs(s.budgets) do
    local left = b.limit - b.s - b.r
    local need = amount_of(b.unit, least)
    local free = b.unit == 'u' and fixed == 0 and unit == 0
    if b.mode ~= 's' and not free and (b.s >= b.limit or left < need) then
      fail(no, would, b.mode == 'a', { s.index, 'b', i, int(b.s), int(b.r), int(b.limit), int(b.ends) })
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
    fail(no, would, s.parallel_audit, { s.index, 'p', 0, int(s.live), '0', int(s.parallel), '1000' })
  end
  if s.rpm and s.w.requests + 1 > s.rpm + 0.000001 then
    fail(no, would, s.rpm_audit, { s.index, 'r', 0, int(math.ceil(s.w.requests)), '0', int(s.rpm), int(wait(s.w, 1, 1, s.rpm)) })
  end
  if s.tpm then
    local need = counted(s.counts, least)
    if s.w.tokens + need > s.tpm + 0.000001 then
      fail(no, would, s.tpm_audit, { s.index, 't', 0, int(math.ceil(s.w.tokens)), '0', int(s.tpm), int(wait(s.w, 2, need, s.tpm)) })
    elseif not s.tpm_audit and s.counts ~= 'i' then
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
  if not s.dead then return end
  call('ZREM', s.l, unpack(s.dead))
  for _, member in ipairs(s.dead) do gone[#gone + 1] = member end
  for _, b in ipairs(s.budgets) do
    if b.stored then call('HSET', s.b, b.r_field, int(b.stored_r)) end
    if b.stored_before then call('HSET', s.b, b.field .. '.R', int(b.stored_R)) end
  end
end

-- add counts the request in a scope and returns its lease member, or ''.
local function add(s, out, reserved, tag)
  local member = id .. '|' .. tag
  local forever = false
  if #s.budgets > 0 then
    local set = {}
    local n = 0
    local ttl = 0
    local fresh = not s.since -- also a hash that nothing but an edit has made: that gave it no TTL
    if fresh then
      set[1] = 'since'
      set[2] = now_text
      n = 2
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
          local f = b.field
          set[n + 1] = f .. '.P'
          set[n + 2] = b.stored
          set[n + 3] = f .. '.S'
          set[n + 4] = int(b.stored_s)
          set[n + 5] = f .. '.R'
          set[n + 6] = int(b.stored_r)
          n = n + 6
        end
        set[n + 1] = b.field .. '.p'
        set[n + 2] = b.period
        set[n + 3] = b.field .. '.s'
        set[n + 4] = '0'
        n = n + 4
      end
      set[n + 1] = b.r_field
      set[n + 2] = int(b.r)
      n = n + 2
      if b.period == '0' then forever = true end
      ttl = math.max(ttl, b.ends - now + b.keep)
    end
    call('HSET', s.b, unpack(set))
    if fresh then
      if forever then call('PERSIST', s.b) else call('PEXPIRE', s.b, int(ttl + DAY35)) end
    end
  end
  local w = s.w
  if w then
    local tokens = counted(s.counts, out)
    w.requests = w.requests + 1
    w.tokens = w.tokens + tokens
    if w.newest and w.newest >= bucket then
      local last = int(w.newest) .. ':' .. int(w.count + 1) .. ':' .. int(w.used + tokens)
      call('HSET', s.r, 'w', string.sub(w.text, w.from, w.at - 1) .. last)
    else
      local last = int(bucket) .. ':1:' .. int(tokens)
      if w.from then last = string.sub(w.text, w.from) .. ' ' .. last end
      call('HSET', s.r, 'w', last)
      call('PEXPIRE', s.r, 120000)
    end
  end
  if not s.l then return '' end
  s.live = s.live + 1
  call('ZADD', s.l, lease_end, member)
  -- A lease that nobody settles must outlast its time: only what is found run out can be given back and recorded. The set
  -- is gone with its last member, so it stays as long as the hash whose reservation it holds at the least. A command costs
  -- as much as much of the script, so this one is spared where the set is known to have its TTL: all but once an hour.
  local hourly = bucket % 720 == 0
  if forever then
    if hourly then call('PERSIST', s.l) end
  elseif hourly or not s.parallel or s.live == 1 then
    call('PEXPIRE', s.l, int(DAY35))
  end
  return member
end

local function use(s)
  local requests = 0
  local tokens = 0
  local w = s.w
  if w then
    requests = math.ceil(w.requests - 0.000001)
    tokens = math.ceil(w.tokens - 0.000001)
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
if #stale > 0 then return { 'stale', now_text, stale } end
if clock then return { 'clock', now_text } end

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
  if #no > 0 then return { 'no', now_text, no, gone } end
  return { 'busy', now_text, int(soonest), busy, gone }
end

local reserved = cost(out)
local members = {}
local uses = {}
local tag = ARGV[12]
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
return { 'ok', int(out), now_text, int(reserved), chosen, bucket, members, uses, would, gone, passed }
