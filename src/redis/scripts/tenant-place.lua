#!lua flags=allow-oom
-- Places of a tenant: how many of its commands may be on their way at the same time, over all its conversations.
-- KEYS[1] zset of commands with a place, score: when it was last known to be needed  [2] zset of those that wait, score: order
-- ARGV[1] 'take'  [2] command id  [3] most places  [4] order  [5] ms after which a place is looked at
--         'free'  [2] command id  [3] most places
--         'seen'  [2] command id
-- Returns {ids that got a place or had it, ids whose places should be looked at since somebody waits}
-- @include _clock.lua
local cid, now = ARGV[2], now_ms()
if ARGV[1] == 'seen' then
  redis.call('ZADD', KEYS[1], 'XX', int(now), cid)
  return { {}, {} }
end
local given, stale = {}, {}
if ARGV[1] == 'free' then
  redis.call('ZREM', KEYS[1], cid)
  redis.call('ZREM', KEYS[2], cid)
elseif redis.call('ZADD', KEYS[1], 'XX', 'CH', int(now), cid) == 1 or redis.call('ZSCORE', KEYS[1], cid) then
  given[1] = cid
else
  redis.call('ZADD', KEYS[2], ARGV[4], cid)
end
while redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[3]) and #given < 100 do
  local first = redis.call('ZPOPMIN', KEYS[2])[1]
  if not first then break end
  redis.call('ZADD', KEYS[1], int(now), first)
  given[#given + 1] = first
end
if ARGV[1] == 'take' and redis.call('ZCARD', KEYS[2]) > 0 then
  stale = redis.call('ZRANGE', KEYS[1], '-inf', int(now - tonumber(ARGV[5])), 'BYSCORE', 'LIMIT', 0, 10)
end
return { given, stale }
