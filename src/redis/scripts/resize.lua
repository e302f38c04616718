#!lua flags=allow-oom
-- Stores the size of a command's terminal, and nudges its worker.
-- KEYS[1] cmd hash
-- ARGV[1] tag prefix  [2] control channel  [3] 'owner' | 'ownerless' | 'any'  [4] session id or ''  [5] attachment id or ''
--      [6] size, '<cols> <rows>'
-- Returns 'resized' | 'no_terminal' | 'ended' | 'not_owner' | 'unknown'
-- @include _writer.lua
local c = redis.call('HMGET', KEYS[1], 'state', 'owner', 'size')
if not c[1] then return 'unknown' end
if not may_write(ARGV[1], c[2], ARGV[3], ARGV[4], ARGV[5]) then return 'not_owner' end
if c[1] == 'ended' then return 'ended' end
if not c[3] then return 'no_terminal' end
redis.call('HSET', KEYS[1], 'size', ARGV[6])
redis.call('SPUBLISH', ARGV[2], 'resize')
return 'resized'
