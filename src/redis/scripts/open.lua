#!lua
-- Creates a session, live, with its first attachment. The same ids again give the same answer (F1).
-- KEYS[1] ses hash
-- ARGV[1] tag prefix  [2] session id  [3] tenant  [4] conversation  [5] principal  [6] attachment id  [7] node id
--      [8] resume token hash  [9] page nonce
-- Returns {'opened', generation, rev} | {'refused'}
-- @include _clock.lua
-- @include _ownership.lua
-- @include _attaches.lua
local prefix, sid, principal = ARGV[1], ARGV[2], ARGV[5]
local now = now_ms()
local held = redis.call('HMGET', KEYS[1], 'hash', 'gen', 'rev', 'principal')
if held[1] then
  if held[1] == ARGV[8] and held[4] == principal then return { 'opened', tonumber(held[2]), tonumber(held[3]) } end
  return { 'refused' }
end
if not claim_conversation(prefix, ARGV[3], ARGV[4], now) then return { 'refused' } end
redis.call('HSET', KEYS[1], 'v', 1, 'principal', principal, 'state', 'live', 'node', ARGV[7], 'gen', 1, 'att', ARGV[6],
  'old', '', 'rev', 0, 'hash', ARGV[8], 'nonce', ARGV[9], 'grace', 0, 'heir', '', 'created', int(now))
note_attach(KEYS[1], 'attach', now, 1, ARGV[7])
redis.call('HINCRBY', prefix .. ':conv', 'open', 1)
note_activity(prefix, principal, sid, now)
return { 'opened', 1, 0 }
