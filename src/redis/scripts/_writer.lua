-- may_write -> whether someone may write to a command or resize its terminal now, decided where the owner is known.
-- `mode` is 'owner' (the connection that holds the owner's session), 'ownerless' (nobody is connected as the owner), 'any'.
local function may_write(prefix, owner, mode, sid, att)
  if mode == 'any' then return true end
  if mode == 'ownerless' then
    return owner == '' or redis.call('HGET', prefix .. ':ses:' .. owner, 'state') ~= 'live' -- guard: owner is connected
  end
  if owner ~= sid then return false end -- fence: owner
  local s = redis.call('HMGET', prefix .. ':ses:' .. sid, 'state', 'att')
  if s[1] ~= 'live' or s[2] ~= att then return false end -- fence: attachment
  return true
end
