#!lua
-- Counts a notice of one origin over all workers: some pass in a window, the one that is too many trips the breaker, and
-- nothing passes until the key expires. The same notice again is answered as before.
-- KEYS[1] zset: notices that passed, by time; while the breaker is open 'open' and the notice that tripped it
-- ARGV[1] notice id  [2] most notices  [3] ms of the window  [4] ms for which it is open
-- Returns {'pass'} | {'trip' | 'open', ms until it closes}
-- @include _clock.lua
local id, most, window = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local known = redis.call('ZSCORE', KEYS[1], id)
if redis.call('ZSCORE', KEYS[1], 'open') then
  return { known and 'trip' or 'open', redis.call('PTTL', KEYS[1]) }
end
if known then return { 'pass' } end
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now - window))
-- The clock was set back: those of a future that did not come yet would count for ever.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. int(now), '+inf')
if redis.call('ZCARD', KEYS[1]) < most then
  redis.call('ZADD', KEYS[1], int(now), id)
  redis.call('PEXPIRE', KEYS[1], window)
  return { 'pass' }
end
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[1], int(now), id, int(now), 'open')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return { 'trip', tonumber(ARGV[4]) }
