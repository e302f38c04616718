#!lua flags=allow-oom
-- Takes or renews the lead of one kind of work. Two leaders for a moment cost work, not truth.
-- KEYS[1] string that holds the leader's id
-- ARGV[1] own id  [2] for how long, ms
-- Returns 1 leading | 0 another leads
local holder = redis.call('GET', KEYS[1])
-- A lead that lasts longer than any is given comes from a clock that stepped back (R4).
if holder and holder ~= ARGV[1] and redis.call('PTTL', KEYS[1]) <= 2 * tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
