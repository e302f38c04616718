-- Turns: how many commands of one origin session may be on their way at the same time, who waits, and who is next.
--   busy:<sid> set    commands that have a place: their job may exist, or they run
--   held:<sid> zset   commands that wait for one, in order: priority, then time
-- The record of a command with a limit says `lim` (most of its session, or ''), `tlim` (most of its tenant, or ''), `order`,
-- and `held` while it has no job: 'delayed', 'session' or 'tenant'. Exact: places are given and taken in the slot of the records.

-- next_turns -> flat list of id, held ('' it may run now | 'tenant' it needs a place of its tenant as well).
local function next_turns(prefix, sid)
  local turns = {}
  local waiting, busy = prefix .. ':held:' .. sid, prefix .. ':busy:' .. sid
  for _ = 1, 100 do
    local cid = redis.call('ZRANGE', waiting, 0, 0)[1]
    if not cid then break end
    local key = prefix .. ':cmd:' .. cid
    local c = redis.call('HMGET', key, 'state', 'held', 'lim', 'tlim')
    if c[1] == 'queued' and c[2] == 'session' then
      if redis.call('SCARD', busy) >= tonumber(c[3]) then break end -- fence: places
      redis.call('SADD', busy, cid)
      local held = c[4] ~= '' and 'tenant' or ''
      if held == '' then redis.call('HDEL', key, 'held') else redis.call('HSET', key, 'held', held) end
      turns[#turns + 1], turns[#turns + 2] = cid, held
    end
    redis.call('ZREM', waiting, cid)
  end
  return turns
end

-- line_up -> as next_turns: a command that is stored as `held` takes its turn, or waits for it.
local function line_up(prefix, cid, sid, lim, order)
  local key = prefix .. ':cmd:' .. cid
  if lim == '' then
    redis.call('HSET', key, 'held', 'tenant')
    return { cid, 'tenant' }
  end
  redis.call('HSET', key, 'held', 'session')
  redis.call('ZADD', prefix .. ':held:' .. sid, order, cid)
  return next_turns(prefix, sid)
end

-- leave -> {} for a command without limits, else {tenant, tlim, then as next_turns}: it is over and its place is given on.
-- Called last: what it touches may be in another place while a slot moves, and the reconciler repairs what is not done.
local function leave(key, cid)
  local c = redis.call('HMGET', key, 'lim', 'tlim', 'origin', 'tenant')
  if not c[1] then return {} end
  redis.call('HDEL', key, 'held')
  local left = { c[4], c[2] }
  if c[1] == '' then return left end
  local prefix = string.sub(key, 1, -#cid - 6) -- without ':cmd:<id>'
  redis.call('SREM', prefix .. ':busy:' .. c[3], cid)
  redis.call('ZREM', prefix .. ':held:' .. c[3], cid)
  for _, value in ipairs(next_turns(prefix, c[3])) do left[#left + 1] = value end
  return left
end
