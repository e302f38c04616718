#!lua
-- Appends entries of a running command; only the holder of the claim writes, and only at head + 1 (DE1, CO2).
-- Exact repeats change nothing; a log that went back is repaired by its writer.
-- KEYS as _append.lua
-- ARGV[1] command id  [2] claim id, then as _append.lua from 3
-- Returns {'appended', head} | {'behind', head} | {'owner', owner or ''} | {'claim_lost'}
-- @include _clock.lua
-- @include _append.lua
local c = redis.call('HMGET', KEYS[1], 'head', 'bytes', 'fb', 'fn', 'lb', 'ln', 'claim', 'owner', 'state')
if not c[7] or c[7] ~= ARGV[2] then return { 'claim_lost' } end -- fence: claim
local head = tonumber(c[1])
if head >= tonumber(ARGV[#ARGV - 2]) then return { 'appended', head } end -- fence: repeat
if c[9] ~= 'running' then return { 'claim_lost' } end
if c[8] ~= ARGV[3] then return { 'owner', c[8] } end -- fence: owner
if tonumber(ARGV[11]) ~= head + 1 then return { 'behind', head } end -- fence: order
return { 'appended', append_entries(3, ARGV[1], c) }
