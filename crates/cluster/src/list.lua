-- Leases of one partition, by the moment they end: {now, {attempt, session/task, end, attempt, ...}}.
--
-- KEYS  1, 2: as leases.lua
-- ARGV  1: how many to pass over, 2: at most so many
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = ARGV[1] + ARGV[2] - 1
local rows = redis.call('ZRANGE', KEYS[1], ARGV[1], last, 'WITHSCORES')
local found = {}
for at = 1, #rows, 2 do
  found[#found + 1] = rows[at]
  found[#found + 1] = redis.call('HGET', KEYS[2], rows[at]) or ''
  found[#found + 1] = rows[at + 1]
end
return {now, found}
