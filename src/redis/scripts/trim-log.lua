#!lua flags=allow-oom
-- Lets go of the log of a command that is over, but its last entry, `ended`: Redis is nearly full (O2). Readers are told
-- what is gone by a gap.
-- KEYS[1] cmd hash  [2] first stream  [3] last stream
-- Returns 1 trimmed | 0 not over, gone, or trimmed before
local c = redis.call('HMGET', KEYS[1], 'state', 'trimmed')
if c[1] ~= 'ended' or c[2] then return 0 end
if redis.call('XLEN', KEYS[3]) > 0 then
  redis.call('XTRIM', KEYS[2], 'MAXLEN', 0)
  redis.call('XTRIM', KEYS[3], 'MAXLEN', 1)
else
  redis.call('XTRIM', KEYS[2], 'MAXLEN', 1)
end
redis.call('HSET', KEYS[1], 'trimmed', 1)
return 1
