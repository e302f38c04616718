#!lua flags=allow-oom
-- Live -> away, only while the attachment (or, for a dead node, the node) is still the session's (OW7).
-- KEYS[1] ses hash
-- ARGV[1] attachment id or ''  [2] node id or ''  [3] session grace, ms
-- Returns 1 | 0 (another attachment holds it, or it is not live)
-- @include _clock.lua
-- @include _attaches.lua
local s = redis.call('HMGET', KEYS[1], 'state', 'att', 'node', 'gen')
if s[1] ~= 'live' then return 0 end
if ARGV[1] ~= '' and s[2] ~= ARGV[1] then return 0 end -- fence: attachment
if ARGV[2] ~= '' and s[3] ~= ARGV[2] then return 0 end
local old = redis.call('HGET', KEYS[1], 'old')
local kept = { s[2] }
for past in string.gmatch(old, '%S+') do
  if #kept < 8 then kept[#kept + 1] = past end
end
redis.call('HSET', KEYS[1], 'state', 'away', 'att', '', 'old', table.concat(kept, ' '), 'grace', int(now_ms() + tonumber(ARGV[3])))
note_attach(KEYS[1], 'away', now_ms(), s[4], s[3])
return 1
