#!lua flags=allow-oom
-- Raises the acknowledged seq of a command, from the owner's current attachment only (DE6, F2).
-- KEYS[1] cmd hash  [2] ses hash  [3] own set
-- ARGV[1] session id  [2] attachment id  [3] command id  [4] seq
-- Returns 1 | 0 (ignored)
local c = redis.call('HMGET', KEYS[1], 'owner', 'acked', 'head', 'state')
if c[1] ~= ARGV[1] then return 0 end -- fence: owner
if redis.call('HGET', KEYS[2], 'att') ~= ARGV[2] then return 0 end -- fence: attachment
local seq, head = tonumber(ARGV[4]), tonumber(c[3])
if seq > head or seq <= tonumber(c[2]) then return 0 end -- fence: acks only rise
redis.call('HSET', KEYS[1], 'acked', seq)
if c[4] == 'ended' and seq == head then redis.call('SREM', KEYS[3], ARGV[3]) end
return 1
