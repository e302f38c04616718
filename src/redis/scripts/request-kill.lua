#!lua flags=allow-oom
-- Records the wish to end a command and the commands that it started, and nudges their workers (CO5). The first reason stays;
-- signal and grace may change.
-- KEYS[1] cmd hash
-- ARGV[1] tag prefix  [2] command id  [3] signal  [4] kill grace, ms  [5] reason  [6] most descendants
-- Returns {'requested', state, worker id} | {'ended'} | {'unknown'}
local c = redis.call('HMGET', KEYS[1], 'state', 'worker', 'kill')
if not c[1] then return { 'unknown' } end
if c[1] == 'ended' then return { 'ended' } end
local prefix = ARGV[1]

local function wish(cid, held)
  local reason = held and cjson.decode(held).reason or ARGV[5]
  redis.call('HSET', prefix .. ':cmd:' .. cid, 'kill',
    cjson.encode({ signal = ARGV[3], graceMs = tonumber(ARGV[4]), reason = reason }))
  redis.call('SPUBLISH', prefix .. ':ctl:' .. cid, 'kill')
end

wish(ARGV[2], c[3])
-- Children of children too, also of those that are over themselves; detached ones are not listed.
local family = { ARGV[2] }
local i = 1
while i <= #family do
  for _, kid in ipairs(redis.call('SMEMBERS', prefix .. ':kids:' .. family[i])) do
    if #family > tonumber(ARGV[6]) then break end
    family[#family + 1] = kid
    local k = redis.call('HMGET', prefix .. ':cmd:' .. kid, 'state', 'kill')
    if k[1] and k[1] ~= 'ended' then wish(kid, k[2]) end
  end
  i = i + 1
end
return { 'requested', c[1], c[2] }
