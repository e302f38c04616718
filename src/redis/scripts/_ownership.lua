-- Who owns what, in one place: open, attach, close, submit and adopt all decide with these functions (OW2, OW3, OW4).
-- `prefix` is "<h>:{tag}"; every key made from it is in the slot of the script.

-- Counts as user activity (OW12). Scores rise strictly, so ties can not happen and a clock that steps back changes nothing.
local function note_activity(prefix, principal, sid, now)
  local zkey = prefix .. ':sessions:' .. principal
  local top = redis.call('ZREVRANGE', zkey, 0, 0, 'WITHSCORES')
  local score = now
  if top[2] and tonumber(top[2]) >= score then score = tonumber(top[2]) + 1 end
  redis.call('ZADD', zkey, int(score), sid)
end

-- pick_heir -> the open session of the principal with the latest user activity, live before away; '' when none (OW2).
local function pick_heir(prefix, principal)
  local zkey = prefix .. ':sessions:' .. principal
  local away = ''
  local offset = 0
  while true do
    local ids = redis.call('ZREVRANGE', zkey, offset, offset + 49)
    for _, id in ipairs(ids) do
      local state = redis.call('HGET', prefix .. ':ses:' .. id, 'state')
      if state == 'live' then return id end
      if state == 'away' and away == '' then away = id end
    end
    if #ids < 50 then return away end
    offset = offset + 50
  end
end

-- raise_rev -> the new rev; tells the session's node that what the session owns has changed (S4).
local function raise_rev(prefix, sid)
  local rev = redis.call('HINCRBY', prefix .. ':ses:' .. sid, 'rev', 1)
  redis.call('SPUBLISH', prefix .. ':s:' .. sid, 'r ' .. rev)
  return rev
end

-- Notes a move in the command's trace, the last 100 of them at least; gaps are there too (note-gap). Fields: time, from, to, why.
local function note_move(prefix, cid, now, from, to, why)
  local key = prefix .. ':trace:' .. cid
  redis.call('RPUSH', key, int(now) .. ' move ' .. (from == '' and '-' or from) .. ' ' .. (to == '' and '-' or to) .. ' ' .. why)
  redis.call('LTRIM', key, -150, -1)
  -- Of a command that is over: the trace may be new, and goes with the rest of it.
  local left = redis.call('PTTL', prefix .. ':cmd:' .. cid)
  if left > 0 then redis.call('PEXPIRE', key, left) end
end

-- give: the command is owned by `sid` from now on. The caller raises the rev of `sid` once for all it gives.
local function give(prefix, cid, sid, why)
  redis.call('HSET', prefix .. ':cmd:' .. cid, 'owner', sid, 'why', why)
  redis.call('SADD', prefix .. ':own:' .. sid, cid)
end

-- set_aside: owned by nobody. `set` is 'parked' (the next session adopts it, OW4) or 'kept' (only on request, OW11).
local function set_aside(prefix, principal, cid, set)
  redis.call('HSET', prefix .. ':cmd:' .. cid, 'owner', '', 'why', '')
  redis.call('SADD', prefix .. ':' .. set .. ':' .. principal, cid)
end

-- assign_anew: the owner is not open any more; the policy says what becomes of the command (OW2, OW4, OW11).
local function assign_anew(prefix, cid, principal, policy, from, now)
  local heir = policy == 'adopt' and pick_heir(prefix, principal) or ''
  if heir ~= '' then
    give(prefix, cid, heir, 'owner_closed')
    raise_rev(prefix, heir)
    note_move(prefix, cid, now, from, heir, 'owner_closed')
    return
  end
  local set = policy == 'adopt' and 'parked' or 'kept'
  set_aside(prefix, principal, cid, set)
  note_move(prefix, cid, now, from, '', set)
end

-- A conversation ends some time after its last session and its last command.
local function settle_conversation(prefix, retention_ms)
  local conv = prefix .. ':conv'
  if tonumber(redis.call('HGET', conv, 'open') or '0') <= 0 and redis.call('EXISTS', prefix .. ':cmds') == 0 then
    redis.call('PEXPIRE', conv, retention_ms)
  end
end

-- claim_conversation -> false when the tag belongs to another tenant or conversation (a digest collision).
local function claim_conversation(prefix, tenant, conversation, now)
  local conv = prefix .. ':conv'
  local held = redis.call('HMGET', conv, 'tenant', 'conversation')
  if held[1] then
    if held[1] ~= tenant or held[2] ~= conversation then return false end
    redis.call('PERSIST', conv)
  else
    redis.call('HSET', conv, 'v', 1, 'tenant', tenant, 'conversation', conversation, 'created', int(now), 'open', 0)
  end
  return true
end
