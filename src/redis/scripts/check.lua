#!lua flags=no-writes,allow-stale
-- What a node compares in its sweep (DE7, SE1).
-- KEYS[1] ses hash  [2…] cmd hashes
-- ARGV[1] session id
-- Returns {state or 'missing', attachment id, rev, then for each command: head or -1, 1 if ended, 1 if owned by the session}
local s = redis.call('HMGET', KEYS[1], 'state', 'att', 'rev')
local answer = { s[1] or 'missing', s[2] or '', tonumber(s[3] or 0) }
for i = 2, #KEYS do
  local c = redis.call('HMGET', KEYS[i], 'head', 'state', 'owner')
  answer[#answer + 1] = c[1] and tonumber(c[1]) or -1
  answer[#answer + 1] = c[2] == 'ended' and 1 or 0
  answer[#answer + 1] = c[3] == ARGV[1] and 1 or 0
end
return answer
