#!lua flags=allow-oom
-- Gives an open session what is parked for its principal, in batches (OW4).
-- KEYS[1] ses hash
-- ARGV[1] tag prefix  [2] session id  [3] most commands to move in this call
-- Returns {moved, 1 if more are parked else 0}
-- @include _clock.lua
-- @include _ownership.lua
local prefix, sid = ARGV[1], ARGV[2]
local s = redis.call('HMGET', KEYS[1], 'state', 'principal')
if s[1] ~= 'live' and s[1] ~= 'away' then return { 0, 0 } end
local parked = prefix .. ':parked:' .. s[2]
local moved = 0
local now = now_ms()
for _, cid in ipairs(redis.call('SRANDMEMBER', parked, tonumber(ARGV[3]))) do
  redis.call('SREM', parked, cid)
  if redis.call('HGET', prefix .. ':cmd:' .. cid, 'owner') == '' then
    give(prefix, cid, sid, 'unparked')
    note_move(prefix, cid, now, '', sid, 'unparked')
    moved = moved + 1
  end
end
if moved > 0 then raise_rev(prefix, sid) end
return { moved, redis.call('EXISTS', parked) }
