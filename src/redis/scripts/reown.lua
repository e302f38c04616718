#!lua flags=allow-oom
-- Finds an owner for a command whose owner is not open any more, or never came back after a failover (OW2, S2).
-- KEYS[1] cmd hash
-- ARGV[1] tag prefix  [2] command id
-- Returns 1 moved or set aside | 0 nothing was wrong
-- @include _clock.lua
-- @include _ownership.lua
local prefix, cid = ARGV[1], ARGV[2]
local c = redis.call('HMGET', KEYS[1], 'owner', 'principal', 'ogone', 'state', 'head', 'acked')
if not c[1] then return 0 end
-- What is over and acknowledged is of interest to nobody any more.
if c[4] == 'ended' and c[5] == c[6] then return 0 end
local owner, principal = c[1], c[2]
if owner == '' then
  local set = c[3] == 'adopt' and 'parked' or 'kept'
  for _, name in ipairs({ 'parked', 'kept' }) do
    if redis.call('SISMEMBER', prefix .. ':' .. name .. ':' .. principal, cid) == 1 then return 0 end
  end
  redis.call('SADD', prefix .. ':' .. set .. ':' .. principal, cid)
  return 1
end
local state = redis.call('HGET', prefix .. ':ses:' .. owner, 'state')
if state == 'live' or state == 'away' then
  -- A set that missed it would hide it from its owner.
  if redis.call('SADD', prefix .. ':own:' .. owner, cid) == 0 then return 0 end
  raise_rev(prefix, owner)
  return 1
end
if state == 'closing' then return 0 end -- its close moves it
redis.call('SREM', prefix .. ':own:' .. owner, cid)
assign_anew(prefix, cid, principal, c[3], owner, now_ms())
return 1
