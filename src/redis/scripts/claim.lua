#!lua
-- Queued -> running for one attempt (CO2). The same claim id again gives the same answer (F1).
-- KEYS[1] cmd hash
-- ARGV[1] claim id  [2] worker id  [3] containment  [4] digest of the token its process gets, or ''
--      [5] newest version of a record that the caller understands
-- A command that a limit holds back has no job; one that comes all the same is refused.
-- Returns {'claimed', spec, tenant, conversation, principal, origin, origin closed 0|1, owner, created, started, head, kill or '', sealed or ''}
--       | {'refused', state, 'held', 'missing' or 'newer'}
-- @include _clock.lua
local c = redis.call('HMGET', KEYS[1], 'state', 'claim', 'held', 'v')
if not c[1] then return { 'refused', 'missing' } end
if tonumber(c[4] or 0) > tonumber(ARGV[5] or 1) then return { 'refused', 'newer' } end -- fence: version
if c[1] == 'queued' then
  if c[3] then return { 'refused', 'held' } end -- fence: turn
  redis.call('HSET', KEYS[1], 'state', 'running', 'claim', ARGV[1], 'worker', ARGV[2], 'containment', ARGV[3], 'started', int(now_ms()), 'token', ARGV[4])
elseif c[1] ~= 'running' or c[2] ~= ARGV[1] then
  return { 'refused', c[1] } -- fence: claim
else
  -- Again by the same attempt: a write, so that WAIT on its fresh socket has something to wait for (W1).
  redis.call('HSET', KEYS[1], 'claim', ARGV[1])
end
local f = redis.call('HMGET', KEYS[1], 'spec', 'tenant', 'conversation', 'principal', 'origin', 'oclosed', 'owner', 'created',
  'started', 'head', 'kill', 'sealed')
return { 'claimed', f[1], f[2], f[3], f[4], f[5], tonumber(f[6]), f[7], tonumber(f[8]), tonumber(f[9]), tonumber(f[10]), f[11] or '',
  f[12] or '' }
