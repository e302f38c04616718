#!lua flags=no-writes
-- Reads entries after a cursor. An owner's read is refused unless session, attachment and ownership hold here and now (DE4, IS2).
-- KEYS[1] cmd hash  [2] first stream  [3] last stream  [4] ses hash (the cmd hash for a viewer)
-- ARGV[1] 'owner' | 'viewer'  [2] session id or ''  [3] attachment id or ''  [4] cursor seq  [5] about this many bytes of text
-- Returns {'unknown'} | {'not_owner'} | {'page', head, acked, 1 if ended, end offset of the cursor's entry or -1,
--          then for each entry: letter, from seq, seq, end offset, text}; an entry with a field that is missing or no number has no text
local c = redis.call('HMGET', KEYS[1], 'head', 'acked', 'state', 'owner')
if not c[1] then return { 'unknown' } end
if ARGV[1] == 'owner' then
  if c[4] ~= ARGV[2] then return { 'not_owner' } end -- fence: owner
  local s = redis.call('HMGET', KEYS[4], 'state', 'att')
  if s[1] ~= 'live' or s[2] ~= ARGV[3] then return { 'not_owner' } end -- fence: attachment
end
local after, limit = ARGV[4], tonumber(ARGV[5])
local answer = { 'page', tonumber(c[1]), tonumber(c[2]), c[3] == 'ended' and 1 or 0, -1 }
if after ~= '0' then
  for k = 2, 3 do
    local held = redis.call('XRANGE', KEYS[k], after .. '-0', after .. '-0')
    if held[1] then answer[5] = tonumber(held[1][2][6]) or -1 end
  end
end
local used, cursor, offset = 0, after, math.max(answer[5], 0)
for k = 2, 3 do
  while used < limit do
    local rows = redis.call('XRANGE', KEYS[k], '(' .. cursor .. '-0', '+', 'COUNT', 32)
    for _, row in ipairs(rows) do
      if used >= limit then break end
      local f = row[2]
      local seq = string.match(row[1], '^%d+')
      local from, past, text = tonumber(f[4]), tonumber(f[6]), f[10]
      local whole = from and past and text and from >= 1 and from <= tonumber(seq)
      if whole then offset = past else text = '' end
      answer[#answer + 1] = f[2] or ''
      answer[#answer + 1] = whole and from or tonumber(seq)
      answer[#answer + 1] = tonumber(seq)
      answer[#answer + 1] = offset
      answer[#answer + 1] = text
      used = used + #text
      cursor = seq
    end
    if #rows < 32 then break end
  end
end
return answer
