#!lua
-- Stores a command once, queued, with its first owner (CO1, OW1, OW3, OW5, OW10). Adds no job.
-- KEYS[1] cmd hash
-- ARGV[1] tag prefix  [2] command id  [3] tenant  [4] conversation  [5] principal  [6] spec, JSON  [7] spec hash
--      [8] 'connection' | 'named' | 'none' | 'inherited'  [9] origin session id or ''  [10] attachment id or ''
--      [11] onOwnerGone  [12] parent command id or ''  [13] 'open' when it has a stdin, else ''
--      [14] size of its terminal, '<cols> <rows>', or ''  [15] 1 when it outlives its parent, else 0  [16] most depth  [17] sealed secrets or ''
--      [18] most commands of its session, or ''  [19] most commands of its tenant, or ''  [20] priority  [21] delay, ms
-- Returns {'accepted', state, owner or '', owner's rev, 1 if repeated, origin or '', held or '', created, then as next_turns} | {'conflict'} | {'origin_unknown'} | {'superseded'}
--       | {'too_deep'}
-- @include _clock.lua
-- @include _ownership.lua
-- @include _turns.lua
local prefix, cid, principal, origin = ARGV[1], ARGV[2], ARGV[5], ARGV[9]
local held = redis.call('HMGET', KEYS[1], 'hash', 'state', 'owner', 'origin', 'held', 'created')
if held[1] then
  if held[1] ~= ARGV[7] then return { 'conflict' } end
  local rev = held[3] ~= '' and redis.call('HGET', prefix .. ':ses:' .. held[3], 'rev')
  return { 'accepted', held[2], held[3], tonumber(rev or 0), 1, held[4], held[5] or '', tonumber(held[6]) }
end
local now = now_ms()
local owner, why, closed = '', '', 0
local parent, aside, depth, kill
if ARGV[8] == 'inherited' then
  -- OW10: origin and first owner are the parent's, as they are now; with no owner it waits where the parent waits.
  parent = ARGV[12]
  local p = redis.call('HMGET', prefix .. ':cmd:' .. parent, 'principal', 'state', 'origin', 'owner', 'depth', 'kill')
  if not p[1] or p[1] ~= principal then return { 'origin_unknown' } end -- fence: parent
  if p[2] ~= 'running' then return { 'origin_unknown' } end -- fence: parent runs
  depth = tonumber(p[5] or 0) + 1
  if depth > tonumber(ARGV[16]) then return { 'too_deep' } end -- guard: depth
  origin, owner, why = p[3], p[4], 'inherited'
  if ARGV[15] ~= '1' then kill = p[6] end
  if owner == '' then
    aside = redis.call('SISMEMBER', prefix .. ':kept:' .. principal, parent) == 1 and 'kept' or 'parked'
  end
  local state = origin ~= '' and redis.call('HGET', prefix .. ':ses:' .. origin, 'state')
  if state == 'closing' or state == 'closed' then closed = 1 end
elseif ARGV[8] == 'none' then
  owner, why = pick_heir(prefix, principal), 'no_origin'
else
  local s = redis.call('HMGET', prefix .. ':ses:' .. origin, 'principal', 'state', 'att')
  if not s[1] or s[1] ~= principal then return { 'origin_unknown' } end -- fence: origin
  local open = s[2] == 'live' or s[2] == 'away'
  if ARGV[8] == 'connection' then
    if s[2] ~= 'live' or s[3] ~= ARGV[10] then return { 'superseded' } end -- fence: attachment
    owner = origin
    note_activity(prefix, principal, origin, now)
  elseif open then
    owner, why = origin, 'inherited'
  else
    closed = 1
    if ARGV[11] == 'adopt' then owner, why = pick_heir(prefix, principal), 'origin_closed' end
  end
end
if not claim_conversation(prefix, ARGV[3], ARGV[4], now) then return { 'origin_unknown' } end

local zkey = prefix .. ':cmds'
local top = redis.call('ZREVRANGE', zkey, 0, 0, 'WITHSCORES')
local score = now
if top[2] and tonumber(top[2]) >= score then score = tonumber(top[2]) + 1 end
redis.call('ZADD', zkey, int(score), cid)
redis.call('HSET', KEYS[1], 'v', 1, 'tenant', ARGV[3], 'conversation', ARGV[4], 'principal', principal, 'spec', ARGV[6],
  'hash', ARGV[7], 'origin', origin, 'oclosed', closed, 'owner', owner, 'why', why, 'parent', ARGV[12], 'ogone', ARGV[11],
  'state', 'queued', 'worker', '', 'claim', '', 'head', 0, 'acked', 0, 'bytes', 0, 'created', int(now))
if ARGV[13] ~= '' then redis.call('HSET', KEYS[1], 'in', ARGV[13], 'inb', 0, 'intaken', 0) end
if ARGV[14] ~= '' then redis.call('HSET', KEYS[1], 'size', ARGV[14]) end
if ARGV[17] ~= '' then redis.call('HSET', KEYS[1], 'sealed', ARGV[17]) end
if parent then
  redis.call('HSET', KEYS[1], 'depth', depth)
  -- Killed together with its parent, and at once when that is being killed already.
  if ARGV[15] ~= '1' then redis.call('SADD', prefix .. ':kids:' .. parent, cid) end
  if kill then redis.call('HSET', KEYS[1], 'kill', kill) end
end
local rev = 0
if owner ~= '' then
  give(prefix, cid, owner, why)
  rev = raise_rev(prefix, owner)
elseif aside then
  set_aside(prefix, principal, cid, aside)
elseif closed == 1 and ARGV[11] ~= 'adopt' then
  set_aside(prefix, principal, cid, 'kept')
  if ARGV[11] == 'kill' then
    redis.call('HSET', KEYS[1], 'kill', cjson.encode({ signal = 'SIGTERM', graceMs = 0, reason = 'owner_gone' }))
  end
else
  set_aside(prefix, principal, cid, 'parked')
end

-- A command that another one may be waiting for runs in that one's place: held back, it would hold itself back for ever.
local lim = origin ~= '' and ARGV[18] or ''
local tlim = ARGV[19]
local answer = { 'accepted', 'queued', owner, rev, 0, origin, '', now }
if (lim == '' and tlim == '') or (parent and ARGV[15] ~= '1') then return answer end
local order = int(tonumber(ARGV[20]) * 10000000000000 + score)
redis.call('HSET', KEYS[1], 'lim', lim, 'tlim', tlim, 'order', order)
if tonumber(ARGV[21]) > 0 then
  redis.call('HSET', KEYS[1], 'held', 'delayed', 'ready', int(now + tonumber(ARGV[21])))
  answer[7] = 'delayed'
  return answer
end
local turns = line_up(prefix, cid, origin, lim, order)
answer[7] = redis.call('HGET', KEYS[1], 'held') or ''
for _, value in ipairs(turns) do answer[#answer + 1] = value end
return answer
