#!lua flags=allow-oom
-- Removes everything of a command whose retention is over (L4).
-- KEYS[1] cmd hash  [2] first stream  [3] last stream  [4] trace list  [5] cmds zset  [6] stdin stream
-- ARGV[1] tag prefix  [2] command id  [3] retention, ms
-- Returns 0 when removed | ms to wait
-- @include _clock.lua
-- @include _ownership.lua
local prefix, cid = ARGV[1], ARGV[2]
local c = redis.call('HMGET', KEYS[1], 'state', 'ended', 'owner', 'principal')
if c[1] then
  if c[1] ~= 'ended' then return tonumber(ARGV[3]) end
  local left = tonumber(c[2]) + tonumber(ARGV[3]) - now_ms()
  if left > tonumber(ARGV[3]) then left = tonumber(ARGV[3]) end
  if left > 0 then return left end
  if c[3] ~= '' then redis.call('SREM', prefix .. ':own:' .. c[3], cid) end
  redis.call('SREM', prefix .. ':parked:' .. c[4], cid)
  redis.call('SREM', prefix .. ':kept:' .. c[4], cid)
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6])
redis.call('DEL', prefix .. ':kids:' .. cid)
redis.call('ZREM', KEYS[5], cid)
settle_conversation(prefix, ARGV[3])
return 0
