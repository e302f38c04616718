-- now_ms() -> Redis TIME in ms, the only clock of the scripts.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- int(n) -> n as decimal digits; Lua would print a large number in exponent form.
local function int(n)
  return string.format('%.0f', n)
end
