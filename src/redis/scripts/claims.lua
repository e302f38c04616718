#!lua flags=no-writes,allow-stale
-- What a worker looks for in the commands it runs: whether it still holds them, and what is wished of them.
-- KEYS cmd hashes
-- Returns for each: claim, state, kill, in, inb, size, each false where there is none
local answer = {}
for i, key in ipairs(KEYS) do
  answer[i] = redis.call('HMGET', key, 'claim', 'state', 'kill', 'in', 'inb', 'size')
end
return answer
