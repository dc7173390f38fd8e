-- Replaces the copy of an identity, but only by a higher revision.
--
-- KEYS  1 the copy
-- ARGV  1 revision    2 the copy as JSON that begins with {"revision":<revision>,
-- Reply 1 it is the copy now; 0 one of the same revision is there; -1 one of a higher revision is there
--
-- Revisions are compared as text: a number loses digits above 2^53.
local have
local old = redis.pcall('GET', KEYS[1])
-- A key of the wrong type, or a text that is no row, is nobody's copy.
if type(old) == 'string' then have = string.match(old, '^{"revision":(%d+),') end
if have == ARGV[1] then return 0 end
if have and (#have > #ARGV[1] or (#have == #ARGV[1] and have > ARGV[1])) then return -1 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
