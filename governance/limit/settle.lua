#!lua flags=allow-oom
-- Settlement: exchanges what an admission reserved for what was really used, exactly once.
--
-- KEYS  1 the last number of its writer (see pipeline.NewOnce); then, if there is a record, its stream; then for each scope
--       those of b, r, l that its "has" names, as in admit.lua
-- ARGV  1 number    2 number before    3 instant of the admission in ms    4 its rate bucket    5 scopes
--       6 record ('' for none)  7 most records the stream keeps
--       then for each scope: has, lease member, requests to add, tokens to add (both may be negative), budgets n,
--       then n times: field, period, actual amount
-- Reply 1, or the error for which the stream did not take the record: what was charged stands
--
-- `reserved` moves only together with its lease member. A settlement whose lease ran out still charges; one admitted
-- before the counter was made does not (the ledger has it); none makes a counter.
local key = 1
local arg = 7
local function take_key()
  key = key + 1
  return KEYS[key]
end
local function take()
  arg = arg + 1
  return ARGV[arg]
end
local function int(n) return string.format('%.0f', n) end
local function is_error(v) return type(v) == 'table' and v.err ~= nil end
local admitted = tonumber(ARGV[3])

local kept = true
if ARGV[6] ~= '' then
  local stream = take_key()
  kept = redis.pcall('XADD', stream, 'MAXLEN', '~', ARGV[7], '*', 'r', ARGV[6])
end

-- correct changes the bucket that the admission counted in, if it is still kept; no bucket goes below zero.
local function correct(r, requests, tokens)
  local text = redis.pcall('HGET', r, 'w')
  if not text or is_error(text) then return end
  local parts = {}
  for b, c, k in string.gmatch(text, '(%d+):(%d+):(%d+)') do
    if b == ARGV[4] then
      c = int(math.max(0, tonumber(c) + requests))
      k = int(math.max(0, tonumber(k) + tokens))
    end
    parts[#parts + 1] = b .. ':' .. c .. ':' .. k
  end
  redis.call('HSET', r, 'w', table.concat(parts, ' '))
end

for _ = 1, tonumber(ARGV[5]) do
  local has = take()
  local member = take()
  local requests = tonumber(take())
  local tokens = tonumber(take())
  local actual = {}
  for i = 1, tonumber(take()) do actual[i] = { take(), take(), take() } end
  local b
  local r
  local l
  if string.find(has, 'b', 1, true) then b = take_key() end
  if string.find(has, 'r', 1, true) then r = take_key() end
  if string.find(has, 'l', 1, true) then l = take_key() end
  local held = {}
  if l and member ~= '' and redis.pcall('ZREM', l, member) == 1 then
    for f, p, a in string.gmatch(member, '|(%w+):(%d+):(%d+)') do held[f .. ':' .. p] = a end
  end
  if b and #actual > 0 then
    local fields = { 'since' }
    for i, x in ipairs(actual) do
      fields[2 * i] = x[1] .. '.p'
      fields[2 * i + 1] = x[1] .. '.P'
    end
    local v = redis.pcall('HMGET', b, unpack(fields))
    if not is_error(v) and v[1] then
      local charged = admitted >= tonumber(v[1])
      for i, x in ipairs(actual) do
        local s
        local reserved
        if v[2 * i] == x[2] then
          s = x[1] .. '.s'
          reserved = x[1] .. '.r'
        elseif v[2 * i + 1] == x[2] then
          s = x[1] .. '.S'
          reserved = x[1] .. '.R'
        end
        if s then
          if charged then redis.call('HINCRBY', b, s, x[3]) end
          local a = held[x[1] .. ':' .. x[2]]
          -- Below zero only when somebody deleted the hash and left its leases.
          if a and redis.call('HINCRBY', b, reserved, '-' .. a) < 0 then redis.call('HSET', b, reserved, '0') end
        end
      end
    end
  end
  if r and (requests ~= 0 or tokens ~= 0) then correct(r, requests, tokens) end
end
if is_error(kept) then return redis.error_reply('RECORD was not taken by the stream: ' .. kept.err) end
return 1
