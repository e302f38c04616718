#!lua flags=allow-oom
-- Makes an attachment the current one of a session (SE1, SE2, SE4). The same attachment again changes nothing (F1).
-- KEYS[1] ses hash
-- ARGV[1] session channel  [2] principal  [3] resume token hash  [4] attachment id  [5] node id  [6] page nonce
--      [7] attachment that did not answer a probe, or ''
-- Returns {'attached', generation, rev} | {'denied'} | {'gone'} | {'superseded'} | {'probe', node id, attachment id}
-- @include _clock.lua
-- @include _attaches.lua
local s = redis.call('HMGET', KEYS[1], 'hash', 'principal', 'state', 'att', 'gen', 'rev', 'old', 'nonce', 'node')
local hash, principal, state, att, gen, rev, old, nonce, node = unpack(s)
if not hash then return { 'denied' } end
if hash ~= ARGV[3] then return { 'denied' } end -- fence: resume token
if principal ~= ARGV[2] then return { 'denied' } end -- fence: principal
if state == 'closing' or state == 'closed' then return { 'gone' } end -- fence: closed
if att == ARGV[4] then return { 'attached', tonumber(gen), tonumber(rev) } end
for past in string.gmatch(old, '%S+') do
  if past == ARGV[4] then return { 'superseded' } end
end
if state == 'live' and ARGV[6] ~= '' and nonce ~= '' and nonce ~= ARGV[6] and ARGV[7] ~= att then
  return { 'probe', node, att } -- fence: duplicated tab
end
local kept = {}
if att ~= '' then kept[1] = att end
for past in string.gmatch(old, '%S+') do
  if #kept < 8 then kept[#kept + 1] = past end
end
redis.call('HSET', KEYS[1], 'state', 'live', 'att', ARGV[4], 'old', table.concat(kept, ' '), 'gen', gen + 1,
  'node', ARGV[5], 'nonce', ARGV[6], 'grace', 0)
note_attach(KEYS[1], 'attach', now_ms(), tonumber(gen) + 1, ARGV[5])
redis.call('SPUBLISH', ARGV[1], 'm ' .. ARGV[4])
return { 'attached', gen + 1, tonumber(rev) }
