#!lua
-- Notes a gap in the trace of a command, for operators: the last 50 of them, beside its moves.
-- KEYS[1] cmd hash  [2] trace list
-- ARGV[1] from seq  [2] to seq  [3] reason
-- Returns 1 | 0 (there is no such command)
-- @include _clock.lua
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local gaps, oldest = 0, nil
for _, line in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if string.find(line, '^%d+ gap ') then
    gaps, oldest = gaps + 1, oldest or line
  end
end
if gaps >= 50 then redis.call('LREM', KEYS[2], 1, oldest) end
redis.call('RPUSH', KEYS[2], int(now_ms()) .. ' gap ' .. ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
local left = redis.call('PTTL', KEYS[1])
if left > 0 then redis.call('PEXPIRE', KEYS[2], left) end
return 1
