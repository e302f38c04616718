#!lua flags=allow-oom
-- Looks at a command that a limit may hold back: whether its turn has come, for itself and for who waits before it.
-- KEYS[1] cmd hash
-- ARGV[1] tag prefix  [2] command id  [3] 'ask' | 'place': its tenant has a place for it
-- Returns {state or 'missing', held or '', ms until it may line up, then as next_turns}
-- @include _clock.lua
-- @include _turns.lua
local prefix, cid = ARGV[1], ARGV[2]
local c = redis.call('HMGET', KEYS[1], 'state', 'held', 'lim', 'origin', 'ready', 'order')
if c[1] ~= 'queued' or not c[3] then return { c[1] or 'missing', '', 0 } end
local held, lim, sid = c[2] or '', c[3], c[4]
if ARGV[3] == 'place' then
  if held ~= 'tenant' then return { c[1], held, 0 } end
  redis.call('HDEL', KEYS[1], 'held')
  return { c[1], '', 0 }
end
local turns = {}
if held == 'delayed' then
  local left = tonumber(c[5]) - now_ms()
  if left > 0 then return { c[1], held, left } end
  turns = line_up(prefix, cid, sid, lim, c[6])
elseif held == 'session' then
  -- Places of commands that are over, or whose records Redis lost: none of them comes to give them back.
  for _, other in ipairs(redis.call('SRANDMEMBER', prefix .. ':busy:' .. sid, 32)) do
    local o = redis.call('HMGET', prefix .. ':cmd:' .. other, 'state', 'held')
    if not o[1] or o[1] == 'ended' or (o[1] == 'queued' and o[2] == 'session') then
      redis.call('SREM', prefix .. ':busy:' .. sid, other)
    end
  end
  turns = line_up(prefix, cid, sid, lim, c[6])
elseif lim ~= '' then
  redis.call('SADD', prefix .. ':busy:' .. sid, cid)
end
held = redis.call('HGET', KEYS[1], 'held') or ''
local answer = { c[1], held, 0 }
for _, value in ipairs(turns) do answer[#answer + 1] = value end
return answer
