#!lua flags=no-writes,allow-stale
-- Looks through a part of a conversation's commands, newest first, for those of a principal.
-- KEYS[1] cmds zset
-- ARGV[1] tag prefix  [2] principal  [3] state, or '' for any  [4] highest score, as ZREVRANGEBYSCORE has it
--      [5] how many to look at  [6] how many to find; it looks no further then
-- Returns {1 when there are no more, else 0; score of the last that was looked at; then for each that fits: command id, score}
local rows = redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[4], '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[5])
local answer = { #rows / 2 < tonumber(ARGV[5]) and 1 or 0, rows[#rows] or '' }
local most = 2 + 2 * tonumber(ARGV[6])
for i = 1, #rows, 2 do
  -- What is no hash is no record: somebody else put it there.
  local c = redis.pcall('HMGET', ARGV[1] .. ':cmd:' .. rows[i], 'principal', 'state')
  if not c.err and c[1] == ARGV[2] and (ARGV[3] == '' or c[2] == ARGV[3]) then
    answer[#answer + 1] = rows[i]
    answer[#answer + 1] = rows[i + 1]
    if #answer >= most and i + 1 < #rows then
      answer[1] = 0
      answer[2] = rows[i + 1]
      break
    end
  end
end
return answer
