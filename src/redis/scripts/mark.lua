#!lua flags=allow-oom
-- Changes or reads one index of Homing; a script, since the plain commands are refused when Redis is full (O1).
-- KEYS[1] zset (note, drop, due) or set (add, remove)
-- ARGV[1] 'note'    [2] member  [3] delay, ms: score = TIME + delay, also where the member had another score
--         'drop'    [2] member  [3] score it must still have; '' for any
--         'has'     [2] member  [3] longest legal delay, ms: what is further away counts as not there (R4)
--         'add' | 'remove'  [2] member
--         'due'     [2] limit
-- Returns 1 | 0; due: member, score, member, score … whose time has come, earliest first
-- @include _clock.lua
local key, op = KEYS[1], ARGV[1]
if op == 'note' then
  redis.call('ZADD', key, int(now_ms() + tonumber(ARGV[3])), ARGV[2])
  return 1
elseif op == 'drop' then
  if ARGV[3] ~= '' then
    local score = redis.call('ZSCORE', key, ARGV[2])
    if not score or tonumber(score) ~= tonumber(ARGV[3]) then return 0 end
  end
  return redis.call('ZREM', key, ARGV[2])
elseif op == 'has' then
  local score = redis.call('ZSCORE', key, ARGV[2])
  return score and tonumber(score) <= now_ms() + tonumber(ARGV[3]) and 1 or 0
elseif op == 'add' then
  return redis.call('SADD', key, ARGV[2])
elseif op == 'remove' then
  return redis.call('SREM', key, ARGV[2])
elseif op == 'due' then
  return redis.call('ZRANGE', key, '-inf', int(now_ms()), 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
end
return redis.error_reply('ERR mark does not know ' .. op)
