-- How a script begins that only a partition's owner may run: one that is behind is refused.
--
-- KEYS  2: the newest epoch that was seen
-- ARGV  1: the caller's epoch
--
-- The clock is this server's, for whoever sets and for whoever judges.
local seen = tonumber(redis.call('GET', KEYS[2]) or '0')
local mine = tonumber(ARGV[1])
if mine < seen then
  return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is behind ' .. seen)
end
if mine > seen then
  redis.call('SET', KEYS[2], ARGV[1])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
