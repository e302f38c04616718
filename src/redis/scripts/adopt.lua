#!lua flags=allow-oom
-- Gives one parked or kept command to an open session of its principal, on request (OW4, OW11).
-- KEYS[1] cmd hash  [2] ses hash
-- ARGV[1] tag prefix  [2] command id  [3] session id  [4] attachment id, or '' when not asked by its connection
-- Returns 'adopted' | 'unknown' | 'not_parked' | 'superseded'
-- @include _clock.lua
-- @include _ownership.lua
local prefix, cid, sid = ARGV[1], ARGV[2], ARGV[3]
local c = redis.call('HMGET', KEYS[1], 'principal', 'owner')
local s = redis.call('HMGET', KEYS[2], 'principal', 'state', 'att')
if not c[1] or c[1] ~= s[1] then return 'unknown' end -- fence: principal
if s[2] ~= 'live' and s[2] ~= 'away' then return 'superseded' end
if ARGV[4] ~= '' and ARGV[4] ~= s[3] then return 'superseded' end -- fence: attachment
if c[2] == sid then return 'adopted' end
if c[2] ~= '' then return 'not_parked' end
local now = now_ms()
redis.call('SREM', prefix .. ':parked:' .. c[1], cid)
redis.call('SREM', prefix .. ':kept:' .. c[1], cid)
give(prefix, cid, sid, 'adopted')
note_move(prefix, cid, now, '', sid, 'adopted')
raise_rev(prefix, sid)
if ARGV[4] ~= '' then note_activity(prefix, c[1], sid, now) end
return 'adopted'
