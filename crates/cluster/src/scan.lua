-- Leases of one partition that have ended, and whether this server may lack some that the caller took
-- or found: {1 if so, now, {session/task/attempt, end, ...}}, oldest end first: behind fence.lua.
--
-- KEYS  1: ends of leases, as leases.lua, 3: the epoch of whoever scanned last
-- ARGV  2: at most so many
local forgot = 0
if redis.call('GET', KEYS[3]) ~= ARGV[1] then
  forgot = 1 -- Another owner, or the keys are gone: told once.
end
-- Written each time: a server that refuses writes keeps no lease, and is to be found out before one is asked for.
redis.call('SET', KEYS[3], ARGV[1])
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
return {forgot, now, ended}
