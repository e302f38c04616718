#!lua flags=allow-oom
-- Appends the last entries of a command, `ended` at the end, and ends it (DE2). As append, but works when Redis is full.
-- KEYS as _append.lua, [5] trace list  [6] stdin stream
-- ARGV[1] command id  [2] claim id  [3] outcome, JSON  [4] retention, ms, then as _append.lua from 5
-- Returns as append; 'appended' with what _turns.lua says of `leave`
-- @include _clock.lua
-- @include _append.lua
-- @include _turns.lua
local c = redis.call('HMGET', KEYS[1], 'head', 'bytes', 'fb', 'fn', 'lb', 'ln', 'claim', 'owner', 'state')
if not c[7] or c[7] ~= ARGV[2] then return { 'claim_lost' } end -- fence: claim
local head = tonumber(c[1])
if head >= tonumber(ARGV[#ARGV - 2]) then return { 'appended', head } end -- fence: repeat
if c[9] ~= 'running' then return { 'claim_lost' } end
if c[8] ~= ARGV[5] then return { 'owner', c[8] } end -- fence: owner
if tonumber(ARGV[13]) ~= head + 1 then return { 'behind', head } end -- fence: order
head = append_entries(5, ARGV[1], c)
finish(ARGV[3], ARGV[4], KEYS[5], KEYS[6])
return { 'appended', head, unpack(leave(KEYS[1], ARGV[1])) }
