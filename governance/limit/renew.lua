#!lua flags=allow-oom
-- Renewal of one request's leases. A lease that Redis lost, or that ran out, is put back with what it held.
--
-- KEYS  for each scope with a lease: b if its "has" names it, then l
-- ARGV  1 now in ms, or '' for the server's clock    2 lease in ms    3 scopes
--       then for each scope: has, lease member
-- Reply the number of leases put back
local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
local lease = tonumber(ARGV[2])
local DAY35 = '3024000000' -- how long a set of leases is kept, as in admit.lua
local function int(n) return string.format('%.0f', n) end
local back = 0
local key = 0
for i = 1, tonumber(ARGV[3]) do
  local has = ARGV[2 + i * 2]
  local member = ARGV[3 + i * 2]
  local b
  if string.find(has, 'b', 1, true) then
    key = key + 1
    b = KEYS[key]
  end
  key = key + 1
  local l = KEYS[key]
  local was = redis.pcall('ZSCORE', l, member)
  local wrong = type(was) == 'table' -- a key of the wrong type; the other scopes' leases are renewed all the same
  if not wrong then
    redis.call('ZADD', l, int(now + lease), member)
    if string.find(member, '|%w+:0:%d') then redis.call('PERSIST', l) else redis.call('PEXPIRE', l, DAY35) end
  end
  if not was then
    back = back + 1
    if b then
      for f, p, a in string.gmatch(member, '|(%w+):(%d+):(%d+)') do
        local periods = redis.call('HMGET', b, f .. '.p', f .. '.P')
        if periods[1] == p then
          redis.call('HINCRBY', b, f .. '.r', a)
        elseif periods[2] == p then
          redis.call('HINCRBY', b, f .. '.R', a)
        end
      end
    end
  end
end
return back
