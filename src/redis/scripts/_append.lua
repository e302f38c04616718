-- append_entries: stores entries and publishes them to the owner's channel, in one atomic step (DE1).
-- KEYS[1] cmd hash  [2] first stream  [3] last stream  [4] ses hash of the owner (the cmd hash when parked)
-- ARGV from index `at`: owner or '' / owner's channel or '' / first bytes / first entries / last bytes / last entries / count, then
--   for each entry: letter, from seq, seq, end offset, text
-- `c` is {head, bytes, fb, fn, lb, ln} of the record: stored output bytes and entries in first and in last.
-- An entry id is <seq>-0. Fields: k letter, f from seq, b end offset, n output bytes held, j text.
-- Returns the new head.
local function append_entries(at, cid, c)
  local owner, channel = ARGV[at], ARGV[at + 1]
  local max_fb, max_fn, max_lb, max_ln = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local count = tonumber(ARGV[at + 6])
  local bytes = tonumber(c[2])
  local fb, fn, lb, ln = tonumber(c[3] or 0), tonumber(c[4] or 0), tonumber(c[5] or 0), tonumber(c[6] or 0)
  local had_last = ln > 0
  -- What is published, in one go: a long string costs Redis as much as its storage, for it hashes every one. The first is set at last.
  local message = { '' }
  local from, head
  local i = at + 7
  for e = 1, count do
    local letter, seq, offset, text = ARGV[i], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
    if e == 1 then from = ARGV[i + 1] end
    local held = 0
    if letter == 'o' then held = offset - bytes end
    local key
    if not had_last and fb + held <= max_fb and fn < max_fn then
      key, fb, fn = KEYS[2], fb + held, fn + 1
    else
      key, lb, ln, had_last = KEYS[3], lb + held, ln + 1, true
    end
    redis.call('XADD', key, seq .. '-0', 'k', letter, 'f', ARGV[i + 1], 'b', ARGV[i + 3], 'n', held, 'j', text)
    bytes, head = offset, seq
    message[e + 1] = text
    i = i + 5
  end

  -- The rolling rest: the oldest go, but watch entries are kept beside the first bytes, and the newest entry always stays.
  -- As many are looked at as came: they are read with their texts, and 33 large ones would be the most of an append.
  local look = math.min(count, 32) + 1
  while (lb > max_lb or ln > max_ln) and ln > 1 do
    local keep_from
    local oldest = redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', look)
    for n = 1, #oldest do
      local entry = oldest[n]
      if n == look or n == #oldest or not (lb > max_lb or ln > max_ln) then
        keep_from = entry[1]
        break
      end
      lb, ln = lb - tonumber(entry[2][8]), ln - 1
      if entry[2][2] == 'w' then redis.call('XADD', KEYS[2], entry[1], unpack(entry[2])) end
    end
    redis.call('XTRIM', KEYS[3], 'MINID', keep_from)
  end

  redis.call('HSET', KEYS[1], 'head', head, 'bytes', int(bytes), 'fb', fb, 'fn', fn, 'lb', lb, 'ln', ln)
  if owner ~= '' then
    local s = redis.call('HMGET', KEYS[4], 'state', 'att')
    -- Told in one number to who looks, instead of by each command that only waits (DE7).
    if s[1] and from == '1' then redis.call('HINCRBY', KEYS[4], 'begun', 1) end
    if s[1] == 'live' then
      message[1] = 'e ' .. owner .. ' ' .. s[2] .. ' ' .. cid .. ' ' .. from .. ' ' .. head .. ' ' .. int(bytes)
      redis.call('SPUBLISH', channel, table.concat(message, '\n'))
    end
  end
  return tonumber(head)
end

-- finish: the command is over. Keys live for the retention and a slack; the expire script removes them before (L4).
local function finish(outcome, retention_ms, trace_key, stdin_key)
  redis.call('HSET', KEYS[1], 'state', 'ended', 'ended', int(now_ms()), 'outcome', outcome)
  local ttl = tonumber(retention_ms) + 3600000
  redis.call('PEXPIRE', KEYS[1], ttl)
  redis.call('PEXPIRE', KEYS[2], ttl)
  redis.call('PEXPIRE', KEYS[3], ttl)
  redis.call('PEXPIRE', trace_key, ttl)
  redis.call('UNLINK', stdin_key)
  redis.call('HDEL', KEYS[1], 'sealed')
end
