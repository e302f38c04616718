#!lua flags=no-writes,allow-stale
-- What a node compares in its sweep (DE7, SE1), for many sessions; on a Cluster for those of one conversation.
-- KEYS for each session: ses hash, then cmd hashes
-- ARGV for each session: session id, how many cmd hashes
-- Returns for each session: state or 'missing', attachment id, rev, how many of its commands began to write, then for each command: head or -1, 1 if ended, 1 if owned by it
local answer = {}
local at = 1
for i = 1, #ARGV, 2 do
  local s = redis.call('HMGET', KEYS[at], 'state', 'att', 'rev', 'begun')
  answer[#answer + 1] = s[1] or 'missing'
  answer[#answer + 1] = s[2] or ''
  answer[#answer + 1] = tonumber(s[3] or 0)
  answer[#answer + 1] = tonumber(s[4] or 0)
  for j = at + 1, at + tonumber(ARGV[i + 1]) do
    local c = redis.call('HMGET', KEYS[j], 'head', 'state', 'owner')
    answer[#answer + 1] = c[1] and tonumber(c[1]) or -1
    answer[#answer + 1] = c[2] == 'ended' and 1 or 0
    answer[#answer + 1] = c[3] == ARGV[i] and 1 or 0
  end
  at = at + 1 + tonumber(ARGV[i + 1])
end
return answer
