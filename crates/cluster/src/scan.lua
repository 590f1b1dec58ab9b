-- Leases of one partition that have ended, and whether this server may lack some that the caller took
-- or found: {1 if so, now, {session/task/attempt, end, ...}}, oldest end first.
--
-- KEYS  1: ends of leases, as leases.lua
--       2: the epoch of whoever scanned last
-- ARGV  1: at most so many, 2: the caller's epoch
local forgot = 0
if redis.call('GET', KEYS[2]) ~= ARGV[2] then
  -- Another owner, or the keys are gone: told once.
  redis.call('SET', KEYS[2], ARGV[2])
  forgot = 1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
return {forgot, now, ended}
