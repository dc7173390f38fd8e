-- Raises the revision in the hash of a scope's counters: admissions that were built from an older one are answered
-- 'stale' from now on.
--
-- KEYS  1 the hash
-- ARGV  1 field    2 revision
-- Reply 1 raised; 0 it was that high already
local have = redis.call('HGET', KEYS[1], ARGV[1])
if have and (#have > #ARGV[2] or (#have == #ARGV[2] and have >= ARGV[2])) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
