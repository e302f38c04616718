#!lua flags=allow-oom
-- Counts as user activity of a session, from its own connection only (OW12).
-- KEYS[1] ses hash
-- ARGV[1] tag prefix  [2] session id  [3] attachment id
-- Returns 1 | 0
-- @include _clock.lua
-- @include _ownership.lua
local s = redis.call('HMGET', KEYS[1], 'state', 'att', 'principal')
if s[1] ~= 'live' or s[2] ~= ARGV[3] then return 0 end -- fence: attachment
note_activity(ARGV[1], s[3], ARGV[2], now_ms())
return 1
