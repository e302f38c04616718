-- note_attach: for operators, the last 20 times at which a session was attached ('attach') or lost its connection ('away').
-- One field of the record, as its past attachments are: no key of its own to look after.
local function note_attach(key, what, now, gen, node)
  local lines = {}
  for line in string.gmatch(redis.call('HGET', key, 'attaches') or '', '[^\n]+') do lines[#lines + 1] = line end
  lines[#lines + 1] = int(now) .. ' ' .. what .. ' ' .. gen .. ' ' .. node
  while #lines > 20 do table.remove(lines, 1) end
  redis.call('HSET', key, 'attaches', table.concat(lines, '\n'))
end
