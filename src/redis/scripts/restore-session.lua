#!lua flags=allow-oom
-- A node says again what it holds, since Redis may have gone back to older data (R2). Later attachments win by their
-- generation; of two with the same one, the one that is stored.
-- KEYS[1] ses hash
-- ARGV[1] tag prefix  [2] session id  [3] tenant  [4] conversation  [5] principal  [6] generation  [7] attachment id
--      [8] node id  [9] resume token hash  [10] page nonce  [11] rev the node knows  [12] ms since the last user activity
-- Returns {'held', rev} | {'restored', rev} (missing or older before: read anew what it owns)
--       | {'superseded'} | {'gone'} (closed) | {'away'} (this attachment was judged dead: to be resumed)
-- @include _clock.lua
-- @include _ownership.lua
-- @include _attaches.lua
local prefix, sid, principal, gen, att = ARGV[1], ARGV[2], ARGV[5], tonumber(ARGV[6]), ARGV[7]
local s = redis.call('HMGET', KEYS[1], 'hash', 'principal', 'state', 'att', 'gen', 'rev', 'old')
local now = now_ms()
local old, rev = '', 0
if s[1] then
  if s[1] ~= ARGV[9] or s[2] ~= principal then return { 'superseded' } end -- fence: identity
  if s[3] == 'closing' or s[3] == 'closed' then return { 'gone' } end -- fence: closed
  if s[3] == 'live' and s[4] == att then return { 'held', tonumber(s[6]) } end
  local stored = tonumber(s[5])
  if stored > gen then return { 'superseded' } end -- fence: later attachment
  local judged = stored == gen and s[3] == 'away' and string.find(' ' .. s[7] .. ' ', ' ' .. att .. ' ', 1, true)
  if judged then return { 'away' } end
  if stored == gen then return { 'superseded' } end -- fence: same generation
  -- The attach of this node was lost: what is stored is what it replaced.
  old, rev = s[7], tonumber(s[6])
  if s[4] ~= '' then
    local kept = { s[4] }
    for past in string.gmatch(old, '%S+') do
      if #kept < 8 then kept[#kept + 1] = past end
    end
    old = table.concat(kept, ' ')
  end
else
  if not claim_conversation(prefix, ARGV[3], ARGV[4], now) then return { 'gone' } end
  redis.call('HSET', KEYS[1], 'created', int(now))
  redis.call('HINCRBY', prefix .. ':conv', 'open', 1)
end
rev = math.max(rev, tonumber(ARGV[11])) + 1
redis.call('HSET', KEYS[1], 'v', 1, 'principal', principal, 'state', 'live', 'node', ARGV[8], 'gen', gen, 'att', att,
  'old', old, 'rev', rev, 'hash', ARGV[9], 'nonce', ARGV[10], 'grace', 0, 'heir', '')
note_attach(KEYS[1], 'attach', now, gen, ARGV[8])
-- Where it stood among its like; being restored is no activity (OW12).
redis.call('ZADD', prefix .. ':sessions:' .. principal, 'NX', int(now - tonumber(ARGV[12])), sid)
redis.call('SPUBLISH', prefix .. ':s:' .. sid, 'm ' .. att)
return { 'restored', rev }
