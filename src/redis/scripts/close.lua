#!lua flags=allow-oom
-- Closes a session for good and moves what it owns, in batches (OW2, OW4, OW6, OW11, S3). Any process may go on with it.
-- KEYS[1] ses hash  [2] own set
-- ARGV[1] tag prefix  [2] session id  [3] 'attachment' | 'again' | 'grace' | 'continue'  [4] attachment id or ''
--      [5] most commands to move in this call  [6] retention, ms  [7] longest legal session grace, ms
-- Returns {'refused', due in ms or -1} | {'more' | 'closed', moved, [command ids whose policy is kill …]}
-- @include _clock.lua
-- @include _ownership.lua
local prefix, sid = ARGV[1], ARGV[2]
local s = redis.call('HMGET', KEYS[1], 'state', 'att', 'grace', 'principal', 'heir')
local state, att, principal, heir = s[1], s[2], s[4], s[5]
if not state then return { 'refused', -1 } end
if state == 'closed' then return { 'closed', 0 } end
local now = now_ms()

if state ~= 'closing' then
  if ARGV[3] == 'attachment' then
    if att ~= ARGV[4] or state ~= 'live' then return { 'refused', -1 } end -- fence: attachment
  elseif ARGV[3] == 'again' then
    -- Redis lost the close; meanwhile its node or a judge may have made it away. Whoever attached since keeps it.
    local last = string.match(redis.call('HGET', KEYS[1], 'old'), '^%S+')
    if state ~= 'away' or last ~= ARGV[4] then return { 'refused', -1 } end
  elseif ARGV[3] == 'grace' then
    if state ~= 'away' then return { 'refused', -1 } end -- fence: grace
    local left = tonumber(s[3]) - now
    -- A deadline further away than any legal one comes from a clock that stepped (R4): wait once more, not for ever.
    if left > tonumber(ARGV[7]) then
      redis.call('HSET', KEYS[1], 'grace', int(now + tonumber(ARGV[7])))
      return { 'refused', tonumber(ARGV[7]) }
    end
    if left > 0 then return { 'refused', left } end
  else
    return { 'refused', -1 }
  end
  redis.call('ZREM', prefix .. ':sessions:' .. principal, sid)
  heir = pick_heir(prefix, principal)
  redis.call('HSET', KEYS[1], 'state', 'closing', 'att', '', 'heir', heir)
  redis.call('SPUBLISH', prefix .. ':s:' .. sid, 'x')
end

-- The heir may have closed since, or one may have opened: then the rest is decided anew.
local heir_state = heir ~= '' and redis.call('HGET', prefix .. ':ses:' .. heir, 'state')
if heir_state ~= 'live' and heir_state ~= 'away' then
  heir = pick_heir(prefix, principal)
  redis.call('HSET', KEYS[1], 'heir', heir)
end

local answer = { 'closed', 0 }
local given = 0
for _, cid in ipairs(redis.call('SRANDMEMBER', KEYS[2], tonumber(ARGV[5]))) do
  local c = redis.call('HMGET', prefix .. ':cmd:' .. cid, 'ogone', 'state', 'owner')
  redis.call('SREM', KEYS[2], cid)
  if c[3] == sid then
    if c[1] == 'adopt' and heir ~= '' then
      give(prefix, cid, heir, 'owner_closed')
      note_move(prefix, cid, now, sid, heir, 'owner_closed')
      given = given + 1
    elseif c[1] == 'adopt' then
      set_aside(prefix, principal, cid, 'parked')
      note_move(prefix, cid, now, sid, '', 'parked')
    else
      set_aside(prefix, principal, cid, 'kept')
      note_move(prefix, cid, now, sid, '', 'kept')
      if c[1] == 'kill' and c[2] ~= 'ended' then answer[#answer + 1] = cid end
    end
    answer[2] = answer[2] + 1
  end
end
if given > 0 then raise_rev(prefix, heir) end

if redis.call('EXISTS', KEYS[2]) == 1 then
  answer[1] = 'more'
  return answer
end
redis.call('HSET', KEYS[1], 'state', 'closed', 'closed', int(now))
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('HINCRBY', prefix .. ':conv', 'open', -1)
settle_conversation(prefix, ARGV[6])
return answer
