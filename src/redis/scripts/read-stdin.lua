#!lua flags=allow-oom
-- Notes what the program took of its stdin, lets go of it, and gives what follows. Only for the holder of the claim.
-- KEYS[1] cmd hash  [2] stdin stream; both as in write.lua
-- ARGV[1] claim id  [2] bytes taken so far  [3] about this many bytes are wanted  [4] 1 when the program reads no more
-- Returns {'claim_lost'} | {'page', bytes written, 1 at the end of file else 0, bytes after those taken…}
-- @include _clock.lua
local c = redis.call('HMGET', KEYS[1], 'claim', 'state', 'in', 'inb', 'intaken')
if c[1] ~= ARGV[1] or c[2] ~= 'running' or not c[3] then return { 'claim_lost' } end -- guard: claim
local taken, stored = tonumber(ARGV[2]), tonumber(c[4])
if taken > tonumber(c[5]) then
  redis.call('HSET', KEYS[1], 'intaken', int(taken))
  redis.call('XTRIM', KEYS[2], 'MINID', int(taken + 1) .. '-0')
end
-- A server that lost its last writes: the worker remembers what the program has.
if taken > stored then
  stored = taken
  redis.call('HSET', KEYS[1], 'inb', int(stored))
end
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'in', 'closed')
  redis.call('XTRIM', KEYS[2], 'MAXLEN', 0)
  return { 'page', stored, 0 }
end
local answer = { 'page', stored, c[3] == 'eof' and 1 or 0 }
local used, cursor = 0, taken
while used < tonumber(ARGV[3]) do
  local rows = redis.call('XRANGE', KEYS[2], '(' .. int(cursor) .. '-0', '+', 'COUNT', 16)
  for _, row in ipairs(rows) do
    if used >= tonumber(ARGV[3]) then break end
    local past = tonumber(string.match(row[1], '^%d+'))
    local bytes = row[2][2]
    local from = past - #bytes
    if from < taken then bytes = string.sub(bytes, taken - from + 1) end
    answer[#answer + 1] = bytes
    used = used + #bytes
    cursor = past
  end
  if #rows < 16 then break end
end
return answer
