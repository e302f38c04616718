#!lua flags=allow-oom
-- Records the wish to end a command and nudges its worker (CO5). The first reason stays; signal and grace may change.
-- KEYS[1] cmd hash
-- ARGV[1] control channel  [2] signal  [3] kill grace, ms  [4] reason
-- Returns {'requested', state, worker id} | {'ended'} | {'unknown'}
local c = redis.call('HMGET', KEYS[1], 'state', 'worker', 'kill')
if not c[1] then return { 'unknown' } end
if c[1] == 'ended' then return { 'ended' } end
local reason = ARGV[4]
if c[3] then reason = cjson.decode(c[3]).reason end
redis.call('HSET', KEYS[1], 'kill', cjson.encode({ signal = ARGV[2], graceMs = tonumber(ARGV[3]), reason = reason }))
redis.call('SPUBLISH', ARGV[1], 'kill')
return { 'requested', c[1], c[2] }
