#!lua flags=allow-oom
-- Notes the log of a command that is over, and says which logs of its tenant, or of its session, are too many: the oldest first.
-- KEYS[1] zset of commands, score: when they ended  [2] hash of their bytes, and of all together in the field '#'
-- ARGV[1] command id  [2] bytes  [3] most bytes  [4] retention, ms  [5…] ids whose logs went otherwise
-- Returns ids whose logs have to go, 100 at most
-- @include _clock.lua
local now = now_ms()
local function forget(cid)
  if redis.call('ZREM', KEYS[1], cid) == 0 then return end
  redis.call('HINCRBY', KEYS[2], '#', -tonumber(redis.call('HGET', KEYS[2], cid) or 0))
  redis.call('HDEL', KEYS[2], cid)
end
-- Those went with their commands.
for _, cid in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', int(now - ARGV[4]), 'BYSCORE', 'LIMIT', 0, 500)) do forget(cid) end
if redis.call('ZADD', KEYS[1], 'NX', int(now), ARGV[1]) == 1 then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
  redis.call('HINCRBY', KEYS[2], '#', ARGV[2])
end
-- After it was noted: it may be one of them itself.
for i = 5, #ARGV do forget(ARGV[i]) end
local ids = {}
while tonumber(redis.call('HGET', KEYS[2], '#')) > tonumber(ARGV[3]) and #ids < 100 do
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not oldest then break end
  forget(oldest)
  ids[#ids + 1] = oldest
end
redis.call('PEXPIRE', KEYS[1], ARGV[4] + 3600000)
redis.call('PEXPIRE', KEYS[2], ARGV[4] + 3600000)
return ids
