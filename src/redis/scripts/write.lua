#!lua
-- Adds bytes to the stdin of a command at their offset, and nudges its worker. An exact repeat changes nothing.
-- KEYS[1] cmd hash  [2] stdin stream
-- ARGV[1] tag prefix  [2] control channel  [3] 'owner' | 'ownerless' | 'any'  [4] session id or ''  [5] attachment id or ''
--      [6] offset of the first byte in the whole stdin  [7] bytes  [8] 1 when nothing follows, else 0
--      [9] most bytes that may wait to be taken
-- The record holds: in ('open', 'eof', or 'closed' by the program), inb (bytes written), intaken (bytes the program took).
-- An entry of the stream: id <offset after its last byte>-0, field d.
-- Returns {'written' | 'beyond' | 'full', next offset} | {'closed'} | {'ended'} | {'not_owner'} | {'unknown'}
-- @include _clock.lua
-- @include _ownership.lua
-- @include _writer.lua
local prefix, sid = ARGV[1], ARGV[4]
local c = redis.call('HMGET', KEYS[1], 'state', 'owner', 'principal', 'in', 'inb', 'intaken')
if not c[1] then return { 'unknown' } end
if not may_write(prefix, c[2], ARGV[3], sid, ARGV[5]) then return { 'not_owner' } end
if ARGV[3] == 'owner' then note_activity(prefix, c[3], sid, now_ms()) end
if c[1] == 'ended' then return { 'ended' } end
if not c[4] or c[4] == 'closed' then return { 'closed' } end

local at, stored, bytes = tonumber(ARGV[6]), tonumber(c[5]), ARGV[7]
local past = at + #bytes
if at > stored then return { 'beyond', stored } end
if past > stored then
  if c[4] == 'eof' then return { 'closed' } end
  -- What waits is bounded, but a single write always fits into an empty stdin.
  if stored > tonumber(c[6]) and past - tonumber(c[6]) > tonumber(ARGV[9]) then return { 'full', stored } end
  redis.call('XADD', KEYS[2], int(past) .. '-0', 'd', string.sub(bytes, stored - at + 1))
  redis.call('HSET', KEYS[1], 'inb', int(past))
  stored = past
end
if ARGV[8] == '1' and c[4] == 'open' then
  if past < stored then return { 'closed' } end
  redis.call('HSET', KEYS[1], 'in', 'eof')
end
redis.call('SPUBLISH', ARGV[2], 'stdin')
return { 'written', stored }
