-- Leases of one partition that have ended, and whether this server may lack some that the caller took
-- or found: {1 if so, now, {session/task/attempt, end, ...}}, oldest end first.
--
-- KEYS  1: ends of leases, 2: the newest epoch that was seen, as leases.lua
--       3: the epoch of whoever scanned last
-- ARGV  1: the caller's epoch, 2: at most so many
local seen = tonumber(redis.call('GET', KEYS[2]) or '0')
local mine = tonumber(ARGV[1])
if mine < seen then
  return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is behind ' .. seen)
end
if mine > seen then
  redis.call('SET', KEYS[2], ARGV[1])
end
local forgot = 0
if redis.call('GET', KEYS[3]) ~= ARGV[1] then
  -- Another owner, or the keys are gone: told once.
  redis.call('SET', KEYS[3], ARGV[1])
  forgot = 1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
return {forgot, now, ended}
