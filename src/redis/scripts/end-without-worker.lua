#!lua flags=allow-oom
-- Ends a command that no worker will end: takes the claim first, then writes the one `ended` (CO3, DE2).
-- KEYS as _append.lua, [5] trace list  [6] stdin stream
-- ARGV[1] command id  [2] expected claim id ('' while queued)  [3] claim id to take  [4] expected head
--      [5] outcome, JSON  [6] retention, ms, then as _append.lua from 7
-- Returns {'ended', then what _turns.lua says of `leave`} | {'refused'} | {'head', head} | {'owner', owner or ''}
-- @include _clock.lua
-- @include _append.lua
-- @include _turns.lua
local c = redis.call('HMGET', KEYS[1], 'head', 'bytes', 'fb', 'fn', 'lb', 'ln', 'claim', 'owner', 'state')
if not c[7] then return { 'refused' } end
if c[9] == 'ended' then return { c[7] == ARGV[3] and 'ended' or 'refused' } end
if c[7] ~= ARGV[2] then return { 'refused' } end -- fence: claim
if tonumber(c[1]) ~= tonumber(ARGV[4]) then return { 'head', tonumber(c[1]) } end
if c[8] ~= ARGV[7] then return { 'owner', c[8] } end -- moved since it was read
redis.call('HSET', KEYS[1], 'claim', ARGV[3])
append_entries(7, ARGV[1], c)
finish(ARGV[5], ARGV[6], KEYS[5], KEYS[6])
return { 'ended', unpack(leave(KEYS[1], ARGV[1])) }
