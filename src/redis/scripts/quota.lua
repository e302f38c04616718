#!lua flags=allow-oom
-- How many of something a tenant or a session has: members by when they were looked at last. Who is at the limit looks at the oldest,
-- says which are gone, and asks again; so nothing has to be taken out when it ends, and a lost note costs nothing.
-- KEYS[1] zset of members, score: when it was added or seen
-- ARGV[1] 'take'  [2] member  [3] most  [4] members to look at
--         'settle'  [2] number of members that are gone, then these, then those that are still there
-- Returns take: {1} it has a place, or had it | {0, now, then member, score, oldest first}; settle: {}
-- @include _clock.lua
local now = now_ms()
if ARGV[1] == 'settle' then
  local gone = tonumber(ARGV[2])
  for i = 3, #ARGV do
    if i < 3 + gone then redis.call('ZREM', KEYS[1], ARGV[i]) else redis.call('ZADD', KEYS[1], 'XX', int(now), ARGV[i]) end
  end
  return {}
end
local function full()
  local answer = { 0, now }
  for _, value in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[4] - 1, 'WITHSCORES')) do answer[#answer + 1] = value end
  return answer
end
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then return { 1 } end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return full() end -- fence: room
redis.call('ZADD', KEYS[1], int(now), ARGV[2])
redis.call('PEXPIRE', KEYS[1], 86400000)
return { 1 }
