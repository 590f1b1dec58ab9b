-- Leases of one partition that have ended, oldest end first: attempt, session/task, attempt, ...
--
-- KEYS  as leases.lua
-- ARGV  1: at most so many
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
local found = {}
for _, attempt in ipairs(ended) do
  found[#found + 1] = attempt
  found[#found + 1] = redis.call('HGET', KEYS[2], attempt) or ''
  found[#found + 1] = redis.call('ZSCORE', KEYS[1], attempt)
end
return found
