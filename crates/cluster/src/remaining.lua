-- Milliseconds until a lease ends, 0 if it has; nil if there is none.
--
-- KEYS  1: as leases.lua
-- ARGV  1: attempt
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends then
  return nil
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return math.max(0, tonumber(ends) - now)
