#!lua flags=allow-oom
-- A worker says again what it runs, since Redis may have gone back to older data (R2): the claim that was lost is made
-- again, a record that is missing is given back. Its log is repaired by append.
-- KEYS[1] cmd hash  [2] first stream  [3] last stream
-- ARGV[1] tag prefix  [2] command id  [3] claim id  [4] owner the worker knows or ''
--      [5…] the record as it was when it was claimed: field, value … ; none: a missing record can not be given back
-- Returns {'held' | 'restored' | 'ended' (by this claim) | 'lost', head}
-- @include _clock.lua
-- @include _ownership.lua
local prefix, cid, claim, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local kept = {}
for i = 5, #ARGV, 2 do kept[ARGV[i]] = ARGV[i + 1] end
-- It runs, so it has its place again, whoever got it meanwhile.
local function keep_place()
  if (kept.lim or '') ~= '' then redis.call('SADD', prefix .. ':busy:' .. kept.origin, cid) end
end
local c = redis.call('HMGET', KEYS[1], 'state', 'claim', 'head')
if c[1] then
  local head = tonumber(c[3])
  if c[2] == claim then return { c[1] == 'ended' and 'ended' or 'held', head } end
  if c[1] ~= 'queued' or not kept.worker then return { 'lost', head } end -- fence: claim
  redis.call('HSET', KEYS[1], 'state', 'running', 'claim', claim)
  redis.call('HDEL', KEYS[1], 'held')
  keep_place()
  for _, field in ipairs({ 'worker', 'containment', 'started', 'token' }) do
    if kept[field] then redis.call('HSET', KEYS[1], field, kept[field]) end
  end
  return { 'restored', head }
end
if not kept.tenant then return { 'lost', 0 } end
local now = now_ms()
if not claim_conversation(prefix, kept.tenant, kept.conversation, now) then return { 'lost', 0 } end
redis.call('DEL', KEYS[2], KEYS[3])
for field, value in pairs(kept) do redis.call('HSET', KEYS[1], field, value) end
redis.call('HSET', KEYS[1], 'state', 'running', 'claim', claim, 'owner', '', 'why', '', 'head', 0, 'acked', 0, 'bytes', 0,
  'fb', 0, 'fn', 0, 'lb', 0, 'ln', 0)
keep_place()
redis.call('ZADD', prefix .. ':cmds', 'NX', kept.created, cid)
local state = owner ~= '' and redis.call('HGET', prefix .. ':ses:' .. owner, 'state')
if owner ~= '' and not state then
  -- Its node may restore it a moment later; if nobody does, the scan finds an owner for the command (S2).
  give(prefix, cid, owner, '')
elseif state == 'live' or state == 'away' then
  give(prefix, cid, owner, '')
  raise_rev(prefix, owner)
else
  assign_anew(prefix, cid, kept.principal, kept.ogone, owner, now)
end
return { 'restored', 0 }
