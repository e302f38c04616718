#!lua flags=allow-oom
-- Takes commands without a record out of a conversation's list: their records were lost (S2).
-- KEYS[1] cmds zset
-- ARGV[1] tag prefix  [2] most members to look at
-- Returns how many were dropped
local dropped = 0
for _, cid in ipairs(redis.call('ZRANDMEMBER', KEYS[1], ARGV[2])) do
  if redis.call('EXISTS', ARGV[1] .. ':cmd:' .. cid) == 0 then dropped = dropped + redis.call('ZREM', KEYS[1], cid) end
end
return dropped
